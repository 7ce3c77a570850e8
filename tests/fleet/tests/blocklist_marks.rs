//! Nodes and workers that the blocklist marks get no new work. A job with very many tasks leaves a
//! marked node within the length of a task. It continues on other nodes without lost or repeated
//! tasks.

use std::collections::BTreeSet;
use std::time::Duration;

use hayward_blocklist_api::InForce;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{
    Agent, TaskRunCounter, TestFleet, Timing, assert_all_succeeded, job, submit, task_outcomes,
    wait_for_end,
};
use hayward_vocabulary::{AllocationId, Size, WorkId};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(2);
const GIB: u64 = 1 << 30;
const TASKS: u64 = 600;
/// Processes that fit on one node.
const NODE_CAPACITY: usize = 4;

/// A fleet with a job of many short tasks.
struct Setup {
    fleet: TestFleet,
    ada: Client,
    job: WorkId,
}

impl Setup {
    /// Returns the processes of the job that have not ended, with their nodes.
    async fn processes(&self) -> Vec<(AllocationId, String)> {
        let path = format!("/v1/jobs/{}", self.job);
        let view: WorkView = self.ada.get(&path).await.expect("a view");
        let processes = view.processes.into_iter();
        let running = processes.filter(|it| it.state == "running");
        running
            .map(|it| (it.allocation, it.node.to_string()))
            .collect()
    }

    /// Waits until the processes of the job fulfil the condition.
    async fn wait_for(
        &self,
        description: &str,
        is_expected: impl Fn(&[(AllocationId, String)]) -> bool,
    ) {
        until_within(description, LIMIT, async || {
            is_expected(&self.processes().await).then_some(())
        })
        .await;
    }

    /// Marks the target of this route, and waits until the mark is in force.
    async fn mark(&self, route: &str) {
        let client = self.fleet.client("blocklist", "operator");
        let path = format!("/v1/blocklist/{route}");
        let request = json!({
            "action": "MARK_BLOCKLISTED", "cause": "bad memory", "duration_ms": 600_000,
        });
        let _: Value = client.put(&path, &request).await.expect("accepted");
        until_within("the mark to be in force", LIMIT, async || {
            let view: Value = client.get(&path).await.ok()?;
            let in_force: InForce = serde_json::from_value(view["in_force"].clone()).ok()?;
            Some(in_force)
        })
        .await;
    }

    async fn count_outcomes_on(&self, node: &str) -> usize {
        let outcomes = task_outcomes(&self.ada, &self.job).await;
        outcomes
            .iter()
            .filter(|it| it.node.as_str() == node)
            .count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_many_tasks_leaves_a_marked_node_and_a_marked_worker() {
    let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
    for name in ["node-1", "node-2"] {
        fleet.start_agent(name, &Agent::default());
    }
    fleet.wait_until_nodes_take_work(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let runs = TaskRunCounter::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = runs.command("0.5");
    work.size = Some(Size::memory(GIB));
    let job = submit(&ada, "jobs", &work).await;
    let setup = Setup { fleet, ada, job };
    let count = |all: &[(AllocationId, String)], node: &str| {
        all.iter().filter(|(_, it)| it == node).count()
    };
    setup
        .wait_for("both nodes in use", |all| {
            count(all, "node-1") == NODE_CAPACITY && count(all, "node-2") == NODE_CAPACITY
        })
        .await;

    setup.mark("nodes/node-1").await;
    let before = setup.count_outcomes_on("node-1").await;
    setup
        .wait_for("the marked node to be left", |it| count(it, "node-1") == 0)
        .await;
    // Each process finishes its current task and may begin one more.
    let after = setup.count_outcomes_on("node-1").await - before;
    println!("{after} tasks ended there since the mark, of {NODE_CAPACITY} processes");
    assert!(
        after <= 3 * NODE_CAPACITY,
        "{after} tasks ended there since the mark"
    );
    let path = format!("/v1/jobs/{}", setup.job);
    let view: WorkView = setup.ada.get(&path).await.expect("a view");
    let waiting = view.tasks.expect("tasks").waiting;
    assert!(waiting > 0, "the job has ended: {view:?}");

    // A marked worker ends in the same way, and another process of the job replaces it.
    let workers = setup.processes().await;
    let worker = workers.first().expect("one of them").0.clone();
    setup.mark(&format!("workers/{worker}")).await;
    setup
        .wait_for("another one in its place", |all| {
            let previous: BTreeSet<&AllocationId> = workers.iter().map(|(id, _)| id).collect();
            let is_running = |id: &AllocationId| all.iter().any(|(other, _)| other == id);
            let has_new_process = all.iter().any(|(id, _)| !previous.contains(id));
            !is_running(&worker) && has_new_process && count(all, "node-2") == NODE_CAPACITY
        })
        .await;

    let view = wait_for_end(&setup.ada, &setup.job, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&setup.ada, &setup.job).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(runs.count(task), 1, "task {task} ran more than once");
    }
}
