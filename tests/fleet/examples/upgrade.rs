//! Upgrades a fleet from the previous version to this one and back, while work runs. Processes are
//! replaced one after the other. Both versions run at once on the tables of this version (A17).

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use hayward::prepare::SERVICES;
use hayward_job_converter_api::WorkState;
use hayward_tests_fleet::{
    Agent, TaskRunCounter, TestFleet, assert_all_succeeded, is_running, job, service, submit,
    task_outcomes, wait_for_end, wait_for_view,
};

const LIMIT: Duration = Duration::from_mins(2);
const TASKS: u64 = 700;
/// Argument of `sleep` in the service. It identifies the processes of the service.
const SERVICE_SECONDS: &str = "10001";
const NODES: [&str; 2] = ["node-1", "node-2"];

/// Runs a command of `fleet.program` with the keys and the database of the operator.
fn run_as_operator(fleet: &TestFleet, arguments: &[&str]) -> String {
    let mut command = fleet.command("operator");
    command
        .args(arguments)
        .env("HAYWARD_STATE", fleet.dir.path())
        .env("HAYWARD_KEYS", fleet.keys.dir())
        .env("HAYWARD_ADMIN_URL", fleet.admin_url())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program runs");
    let output = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(status.success(), "{arguments:?}: {output}");
    output
}

/// Replaces every service and then every agent by this program. After each replacement, new work
/// succeeds.
async fn replace_program(fleet: &mut TestFleet, program: &Path) {
    let keys = fleet.keys.dir().display().to_string();
    program.clone_into(&mut fleet.program);
    run_as_operator(fleet, &["backup"]);
    println!("{}", run_as_operator(fleet, &["preflight"]));
    run_as_operator(fleet, &["prepare", "--keys", &keys]);
    for (service, _) in SERVICES {
        fleet.terminate(service);
        fleet.start_service(service);
        fleet.wait_until_services_are_ready().await;
        assert_jobs_complete(fleet).await;
    }
    for node in NODES {
        fleet.terminate(node);
        fleet.start_agent(node, &Agent::default());
        fleet.wait_until_nodes_take_work(NODES.len()).await;
        assert_jobs_complete(fleet).await;
    }
}

async fn assert_jobs_complete(fleet: &TestFleet) {
    let ada = fleet.client("job-converter", "user-ada");
    let id = submit(&ada, "jobs", &job(&["true"], 3)).await;
    assert_eq!(
        wait_for_end(&ada, &id, LIMIT).await.state,
        WorkState::Completed
    );
}

/// The argument is the path of the program of the previous version. `tests/upgrade.sh` builds it.
#[tokio::main]
async fn main() {
    let argument = std::env::args_os().nth(1);
    let previous_program = PathBuf::from(argument.expect("the program of the previous version"));
    let mut fleet = TestFleet::start_with_program(previous_program.clone()).await;
    for node in NODES {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.wait_until_nodes_take_work(NODES.len()).await;
    let ada = fleet.client("job-converter", "user-ada");
    let service_id = submit(&ada, "services", &service(&["sleep", SERVICE_SECONDS], 2)).await;
    let service_path = format!("/v1/services/{service_id}");
    let read_allocations = async || {
        let view = wait_for_view(&ada, &service_path, LIMIT, |view| {
            is_running(view) && view.processes.len() == 2
        });
        let mut allocations: Vec<String> = view
            .await
            .processes
            .iter()
            .map(|process| process.allocation.to_string())
            .collect();
        allocations.sort();
        allocations
    };
    let allocations_before = read_allocations().await;
    let runs = TaskRunCounter::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = runs.command("0.3");
    // There is space for the other jobs, so no process is preempted, and each task runs once.
    work.max_processes = Some(2);
    let job_id = submit(&ada, "jobs", &work).await;

    replace_program(&mut fleet, hayward_tests_fleet::hayward_program()).await;
    replace_program(&mut fleet, &previous_program).await;

    let view = wait_for_end(&ada, &job_id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&ada, &job_id).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(runs.count(task), 1, "task {task} ran more than once");
    }
    assert_eq!(
        read_allocations().await,
        allocations_before,
        "the service was never interrupted"
    );
    let service_command = format!("sleep {SERVICE_SECONDS}");
    assert_eq!(fleet.count_processes(&service_command), 2);
    println!("the fleet was taken to this version and back, and nothing was lost");
}
