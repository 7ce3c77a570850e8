//! Every process is killed in turn with `kill -9`, while tasks run. No outcome is lost or doubled,
//! and a running service is not interrupted (I6).

use std::time::Duration;

use hayward_job_converter_api::WorkState;
use hayward_tests_fleet::{
    Agent, TaskRunCounter, TestFleet, assert_all_succeeded, job, service, submit, task_outcomes,
    wait_for_end, wait_for_view,
};

const LIMIT: Duration = Duration::from_mins(2);
const TASKS: u64 = 400;

/// Waits until at least this percentage of the tasks has ended.
async fn wait_for_progress(client: &hayward_service::Client, path: &str, percent: u64) {
    wait_for_view(client, path, LIMIT, |view| {
        let tasks = view.tasks.unwrap_or_default();
        (tasks.succeeded + tasks.failed) * 100 >= percent * tasks.total
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_is_lost_or_repeated_when_each_process_is_killed_in_turn() {
    let mut fleet = TestFleet::start_with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = runs.command("0.2");
    let id = submit(&ada, "jobs", &work).await;
    let service_id = submit(&ada, "services", &service(&["sleep", "1000"], 1)).await;
    let service_path = format!("/v1/services/{service_id}");
    let has_running_process = |view: &hayward_job_converter_api::WorkView| {
        view.processes.iter().any(|it| it.state == "running")
    };
    let before = wait_for_view(&ada, &service_path, LIMIT, has_running_process).await;
    let path = format!("/v1/jobs/{id}");
    let processes = [
        "job-converter",
        "node-1",
        "rm-scheduler",
        "container-manager",
        "node-2",
        "node-status",
        "blocklist",
    ];
    for (index, process) in processes.into_iter().enumerate() {
        wait_for_progress(&ada, &path, 5 + 10 * index as u64).await;
        fleet.kill(process);
        if matches!(process, "node-1" | "node-2") {
            fleet.start_agent(process, &Agent::default());
        } else {
            fleet.start_service(process);
        }
        fleet.wait_until_services_are_ready().await;
    }
    let view = wait_for_end(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&ada, &id).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(runs.count(task), 1, "task {task} ran more than once");
    }
    let after = wait_for_view(&ada, &service_path, LIMIT, has_running_process).await;
    assert_eq!(
        before.processes[0].allocation, after.processes[0].allocation,
        "the service was never interrupted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_is_repeated_when_postgres_is_restarted_and_killed() {
    let fleet = TestFleet::start_with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    let mut work = job(&[], 200);
    work.command = runs.command("0.1");
    let id = submit(&ada, "jobs", &work).await;
    let path = format!("/v1/jobs/{id}");
    wait_for_progress(&ada, &path, 20).await;
    fleet.server.restart().await;
    wait_for_progress(&ada, &path, 50).await;
    fleet.server.kill().await;
    fleet.server.resume().await;
    let view = wait_for_end(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&ada, &id).await, 200);
    for task in 0..200 {
        assert_eq!(runs.count(task), 1, "task {task} ran more than once");
    }
}

/// A node dies with everything on it. Its unfinished tasks run again on the other node.
#[tokio::test(flavor = "multi_thread")]
async fn all_tasks_succeed_when_a_node_is_lost() {
    let mut fleet = TestFleet::start_with_agents(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    let mut work = job(&[], 200);
    work.command = runs.command("0.1");
    let id = submit(&ada, "jobs", &work).await;
    wait_for_progress(&ada, &format!("/v1/jobs/{id}"), 20).await;
    fleet.lose_node("node-1");
    let view = wait_for_end(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&ada, &id).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_complete_before_and_after_one_of_two_schedulers_is_killed() {
    let mut fleet = TestFleet::start().await;
    let second = fleet.start_second_replica("rm-scheduler", "rm-scheduler-2");
    let both_urls = format!("{},{second}", fleet.addresses.rm_scheduler);
    fleet.addresses.rm_scheduler = both_urls;
    for neighbour in ["job-converter", "container-manager"] {
        fleet.kill(neighbour);
        fleet.start_service(neighbour);
    }
    fleet.start_agent("node-1", &Agent::default());
    fleet.wait_until_nodes_take_work(1).await;
    let ada = fleet.client("job-converter", "user-ada");
    let first = submit(&ada, "jobs", &job(&["true"], 5)).await;
    assert_eq!(
        wait_for_end(&ada, &first, LIMIT).await.state,
        WorkState::Completed
    );
    fleet.kill("rm-scheduler");
    let after = submit(&ada, "jobs", &job(&["true"], 5)).await;
    assert_eq!(
        wait_for_end(&ada, &after, LIMIT).await.state,
        WorkState::Completed
    );
}
