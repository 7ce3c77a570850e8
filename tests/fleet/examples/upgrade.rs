//! Upgrade from the previous version to this one and back, one process after the other, while work
//! runs. The two versions run at the same time on the tables of this one (A17).

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use hayward::prepare::SERVICES;
use hayward_job_converter_api::WorkState;
use hayward_tests_fleet::{
    Agent, TestFleet, Witness, all_right, ends, is_running, job, outcomes, reaches, service, submit,
};

const LIMIT: Duration = Duration::from_mins(2);
const TASKS: u64 = 1_000;
const NODES: [&str; 2] = ["node-1", "node-2"];

/// Runs the program that will replace the running one, as an operator would.
fn operator(fleet: &TestFleet, words: &[&str]) -> String {
    let mut command = fleet.command("operator");
    command
        .args(words)
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
    assert!(status.success(), "{words:?}: {output}");
    output
}

/// Replaces every service and then every agent by this program. After each replacement, new work
/// succeeds.
async fn becomes(fleet: &mut TestFleet, program: &Path) {
    let keys = fleet.keys.dir().display().to_string();
    program.clone_into(&mut fleet.program);
    operator(fleet, &["backup"]);
    println!("{}", operator(fleet, &["preflight"]));
    operator(fleet, &["prepare", "--keys", &keys]);
    for (service, _) in SERVICES {
        fleet.terminate(service);
        fleet.start_service(service);
        fleet.services_are_ready().await;
        works(fleet).await;
    }
    for node in NODES {
        fleet.terminate(node);
        fleet.start_agent(node, &Agent::default());
        fleet.nodes_take_work(NODES.len()).await;
        works(fleet).await;
    }
}

async fn works(fleet: &TestFleet) {
    let ada = fleet.client("job-converter", "user-ada");
    let id = submit(&ada, "jobs", &job(&["true"], 3)).await;
    assert_eq!(ends(&ada, &id, LIMIT).await.state, WorkState::Completed);
}

/// The argument is the path of the program of the previous version. `tests/upgrade.sh` builds it.
#[tokio::main]
async fn main() {
    let before = std::env::args_os().nth(1);
    let before = PathBuf::from(before.expect("the program of the version before"));
    let mut fleet = TestFleet::by(before.clone()).await;
    for node in NODES {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.nodes_take_work(NODES.len()).await;
    let ada = fleet.client("job-converter", "user-ada");
    let up = submit(&ada, "services", &service(&["sleep", "10001"], 2)).await;
    let up = format!("/v1/services/{up}");
    let places = async || {
        let view = reaches(&ada, &up, LIMIT, |view| {
            is_running(view) && view.processes.len() == 2
        });
        let mut places: Vec<String> = view
            .await
            .processes
            .iter()
            .map(|process| process.allocation.to_string())
            .collect();
        places.sort();
        places
    };
    let places_before = places().await;
    let witness = Witness::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = witness.command("0.3");
    let long = submit(&ada, "jobs", &work).await;

    becomes(&mut fleet, hayward_tests_fleet::program()).await;
    becomes(&mut fleet, &before).await;

    let view = ends(&ada, &long, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&ada, &long).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(witness.times(task), 1, "task {task} ran more than once");
    }
    assert_eq!(
        places().await,
        places_before,
        "the service was never interrupted"
    );
    assert_eq!(fleet.alive_anywhere("sleep 10001"), 2);
    println!("the fleet was taken to this version and back, and nothing was lost");
}
