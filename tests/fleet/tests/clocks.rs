//! The clock of each process in turn is wrong by an hour, while work runs and is submitted. No
//! acknowledged work fails because of wrong clocks (F23).

use std::time::Duration;

use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_service::health::Status;
use hayward_testkit::until;
use hayward_tests_fleet::{
    Agent, TaskRunCounter, TestFleet, assert_all_succeeded, job, service, submit, task_outcomes,
    wait_for_end, wait_for_view,
};
use hayward_vocabulary::WorkId;

const LIMIT: Duration = Duration::from_mins(4);
const HOUR_MS: i64 = 3_600_000;
const TASKS: u64 = 160;
/// Tasks of each job that is submitted while a clock is wrong.
const TASKS_PER_SMALL_JOB: u64 = 2;

const SERVICES: [&str; 5] = [
    "job-converter",
    "node-status",
    "container-manager",
    "rm-scheduler",
    "blocklist",
];

/// Jobs of short tasks, each submitted while a clock was wrong.
struct Load {
    client: Client,
    command: Vec<String>,
    submitted: Vec<WorkId>,
}

impl Load {
    async fn submit(&mut self) {
        let mut work = job(&[], TASKS_PER_SMALL_JOB);
        work.command.clone_from(&self.command);
        self.submitted
            .push(submit(&self.client, "jobs", &work).await);
    }

    /// Asserts that every job has succeeded, each task with its first attempt.
    async fn assert_all_completed(&self) {
        for id in &self.submitted {
            let view = wait_for_end(&self.client, id, LIMIT).await;
            assert_eq!(view.state, WorkState::Completed, "{view:?}");
            let tasks = task_outcomes(&self.client, id).await;
            assert_all_succeeded(&tasks, TASKS_PER_SMALL_JOB);
            assert!(tasks.iter().all(|it| it.attempt == 1), "{tasks:?}");
        }
    }
}

fn has_running_process(view: &WorkView) -> bool {
    let mut processes = view.processes.iter();
    processes.any(|process| process.state == "running")
}

async fn assert_clocks_can_be_stepped(fleet: &TestFleet) {
    for service in SERVICES {
        let client = fleet.client(service, "operator");
        let status: Status = client.get("/v1/status").await.expect("a status");
        assert_eq!(status.insecure_modes, ["clock_stepped_by_a_test"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_work_fails_when_clocks_are_wrong_by_an_hour() {
    let mut fleet = TestFleet::start_with_clocks().await;
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.wait_until_nodes_take_work(2).await;
    assert_clocks_can_be_stepped(&fleet).await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = runs.command("0.5");
    work.max_processes = Some(2);
    let long_job = submit(&ada, "jobs", &work).await;
    let service_id = submit(&ada, "services", &service(&["sleep", "10000"], 1)).await;
    let service_path = format!("/v1/services/{service_id}");
    let before = wait_for_view(&ada, &service_path, LIMIT, has_running_process).await;

    let mut load = Load {
        client: fleet.client("job-converter", "user-ben"),
        command: TaskRunCounter::new(&fleet.dir.path().join("few")).command("0.2"),
        submitted: Vec::new(),
    };
    let processes = SERVICES.into_iter().chain(["node-1", "node-2"]);
    for process in processes {
        for ahead_ms in [HOUR_MS, 0, -HOUR_MS, 0] {
            fleet.step_clock(process, ahead_ms);
            load.submit().await;
            // This job begins and ends under the present clock, in a new process.
            let newest = load.submitted.last().expect("a job was submitted").clone();
            let view = wait_for_end(&load.client, &newest, LIMIT).await;
            assert_eq!(view.state, WorkState::Completed, "{process} {ahead_ms}");
            // This job is submitted under the present clock and runs under the next one.
            load.submit().await;
        }
    }
    load.assert_all_completed().await;
    let view = wait_for_end(&ada, &long_job, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&ada, &long_job).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(runs.count(task), 1, "task {task} ran more than once");
    }
    let after = wait_for_view(&ada, &service_path, LIMIT, has_running_process).await;
    let allocation = |view: &WorkView| view.processes[0].allocation.clone();
    assert_eq!(
        allocation(&before),
        allocation(&after),
        "the service was never interrupted"
    );

    // Tokens from before and after the step are valid everywhere.
    for service in SERVICES {
        let client = fleet.client(service, "operator");
        until("an answer", async || {
            client.get::<Status>("/v1/status").await.ok()
        })
        .await;
    }
}
