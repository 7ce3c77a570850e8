//! Clocks that are wrong by an hour, one after the other, while work runs and is submitted: no
//! acknowledged work fails because of it (F23).

use std::time::Duration;

use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_service::health::Status;
use hayward_testkit::until;
use hayward_tests_fleet::{
    Agent, TestFleet, Witness, all_right, ends, job, outcomes, reaches, service, submit,
};
use hayward_vocabulary::WorkId;

const LIMIT: Duration = Duration::from_mins(4);
const HOUR_MS: i64 = 3_600_000;
const TASKS: u64 = 160;
/// Tasks of each job that is submitted while a clock is wrong.
const FEW: u64 = 2;

const SERVICES: [&str; 5] = [
    "job-converter",
    "node-status",
    "container-manager",
    "rm-scheduler",
    "blocklist",
];

/// Jobs of short tasks, each submitted while a clock was wrong.
struct Load {
    ben: Client,
    command: Vec<String>,
    taken: Vec<WorkId>,
}

impl Load {
    async fn submit(&mut self) {
        let mut work = job(&[], FEW);
        work.command.clone_from(&self.command);
        self.taken.push(submit(&self.ben, "jobs", &work).await);
    }

    /// Asserts that every job has succeeded, each task with its first attempt.
    async fn is_completed(&self) {
        for id in &self.taken {
            let view = ends(&self.ben, id, LIMIT).await;
            assert_eq!(view.state, WorkState::Completed, "{view:?}");
            let tasks = outcomes(&self.ben, id).await;
            all_right(&tasks, FEW);
            assert!(tasks.iter().all(|it| it.attempt == 1), "{tasks:?}");
        }
    }
}

fn running(view: &WorkView) -> bool {
    let mut all = view.processes.iter();
    all.any(|process| process.state == "running")
}

async fn clocks_are_stepped(fleet: &TestFleet) {
    for service in SERVICES {
        let client = fleet.client(service, "operator");
        let status: Status = client.get("/v1/status").await.expect("a status");
        assert_eq!(status.insecure_modes, ["clock_stepped_by_a_test"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_go_an_hour_forth_and_back_cost_no_work_that_was_acknowledged() {
    let mut fleet = TestFleet::with_clocks().await;
    for node in ["node-1", "node-2"] {
        fleet.start_agent(node, &Agent::default());
    }
    fleet.nodes_take_work(2).await;
    clocks_are_stepped(&fleet).await;
    let ada = fleet.client("job-converter", "user-ada");
    let witness = Witness::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = witness.command("0.5");
    work.max_processes = Some(2);
    let long = submit(&ada, "jobs", &work).await;
    let up = submit(&ada, "services", &service(&["sleep", "10000"], 1)).await;
    let service_path = format!("/v1/services/{up}");
    let before = reaches(&ada, &service_path, LIMIT, running).await;

    let mut load = Load {
        ben: fleet.client("job-converter", "user-ben"),
        command: Witness::new(&fleet.dir.path().join("few")).command("0.2"),
        taken: Vec::new(),
    };
    let machines = SERVICES.into_iter().chain(["node-1", "node-2"]);
    for machine in machines {
        for ahead_ms in [HOUR_MS, 0, -HOUR_MS, 0] {
            fleet.step_clock(machine, ahead_ms);
            load.submit().await;
            // This job begins and ends under the present clock, with a runner of its own.
            let newest = load.taken.last().expect("one was taken").clone();
            let view = ends(&load.ben, &newest, LIMIT).await;
            assert_eq!(view.state, WorkState::Completed, "{machine} {ahead_ms}");
            // This job is submitted under the present clock and runs under the next one.
            load.submit().await;
        }
    }
    load.is_completed().await;
    let view = ends(&ada, &long, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&ada, &long).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(witness.times(task), 1, "task {task} ran more than once");
    }
    let after = reaches(&ada, &service_path, LIMIT, running).await;
    let allocation = |view: &WorkView| view.processes[0].allocation.clone();
    assert_eq!(
        allocation(&before),
        allocation(&after),
        "it was never interrupted"
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
