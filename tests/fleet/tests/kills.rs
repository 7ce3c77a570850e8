//! `kill -9` of every process in turn, while tasks run. No outcome is lost or doubled, and no work
//! is interrupted that could go on (I6).

use std::time::Duration;

use hayward_job_converter_api::WorkState;
use hayward_tests_fleet::{
    Agent, TestFleet, Witness, all_right, ends, job, outcomes, reaches, service, submit,
};

const LIMIT: Duration = Duration::from_mins(2);
const TASKS: u64 = 400;

/// Waits until at least `share` of a hundred tasks are done.
async fn done(client: &hayward_service::Client, path: &str, share: u64) {
    reaches(client, path, LIMIT, |view| {
        let tasks = view.tasks.unwrap_or_default();
        (tasks.succeeded + tasks.failed) * 100 >= share * tasks.total
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_and_every_agent_in_turn() {
    let mut fleet = TestFleet::with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let witness = Witness::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = witness.command("0.2");
    let id = submit(&ada, "jobs", &work).await;
    let up = submit(&ada, "services", &service(&["sleep", "1000"], 1)).await;
    let service_path = format!("/v1/services/{up}");
    let running = |view: &hayward_job_converter_api::WorkView| {
        view.processes
            .iter()
            .any(|process| process.state == "running")
    };
    let before = reaches(&ada, &service_path, LIMIT, running).await;
    let path = format!("/v1/jobs/{id}");
    let victims = [
        "job-converter",
        "node-1",
        "rm-scheduler",
        "container-manager",
        "node-2",
        "node-status",
        "blocklist",
    ];
    for (turn, victim) in victims.into_iter().enumerate() {
        done(&ada, &path, 5 + 10 * turn as u64).await;
        fleet.kill(victim);
        if matches!(victim, "node-1" | "node-2") {
            fleet.start_agent(victim, &Agent::default());
        } else {
            fleet.start_service(victim);
        }
        fleet.services_are_ready().await;
    }
    let view = ends(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&ada, &id).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(witness.times(task), 1, "task {task} ran more than once");
    }
    let after = reaches(&ada, &service_path, LIMIT, running).await;
    assert_eq!(
        before.processes[0].allocation, after.processes[0].allocation,
        "the service was never interrupted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_in_the_middle_of_it() {
    let fleet = TestFleet::with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let witness = Witness::new(fleet.dir.path());
    let mut work = job(&[], 200);
    work.command = witness.command("0.1");
    let id = submit(&ada, "jobs", &work).await;
    let path = format!("/v1/jobs/{id}");
    done(&ada, &path, 20).await;
    fleet.server.restart().await;
    done(&ada, &path, 50).await;
    fleet.server.kill().await;
    fleet.server.resume().await;
    let view = ends(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&ada, &id).await, 200);
    for task in 0..200 {
        assert_eq!(witness.times(task), 1, "task {task} ran more than once");
    }
}

/// A node dies with everything on it. Its tasks run again on other nodes, all other tasks run once.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_costs_its_own_tasks_a_second_run() {
    let mut fleet = TestFleet::with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let witness = Witness::new(fleet.dir.path());
    let mut work = job(&[], 200);
    work.command = witness.command("0.1");
    let id = submit(&ada, "jobs", &work).await;
    done(&ada, &format!("/v1/jobs/{id}"), 20).await;
    fleet.lose("node-1");
    let view = ends(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&ada, &id).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_schedulers_leads_and_both_survive() {
    let mut fleet = TestFleet::start().await;
    let second = fleet.start_second("rm-scheduler", "rm-scheduler-2");
    let both = format!("{},{second}", fleet.addresses.rm_scheduler);
    fleet.addresses.rm_scheduler = both;
    for neighbour in ["job-converter", "container-manager"] {
        fleet.kill(neighbour);
        fleet.start_service(neighbour);
    }
    fleet.start_agent("node-1", &Agent::default());
    fleet.nodes_take_work(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let first = submit(&ada, "jobs", &job(&["true"], 5)).await;
    assert_eq!(ends(&ada, &first, LIMIT).await.state, WorkState::Completed);
    fleet.kill("rm-scheduler");
    let after = submit(&ada, "jobs", &job(&["true"], 5)).await;
    assert_eq!(ends(&ada, &after, LIMIT).await.state, WorkState::Completed);
}
