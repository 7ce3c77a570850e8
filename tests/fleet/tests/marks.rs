//! A mark means no new work, for jobs too. A job with very many tasks leaves a marked node within
//! the length of a task. It continues on other nodes without lost or repeated tasks. Work that was
//! cancelled on a lost node ends.

use std::collections::BTreeSet;
use std::time::Duration;

use hayward_blocklist_api::InForce;
use hayward_container_manager_api::{ContainerList, ContainerState, ContainerView};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_node_status_api::{Health, NodeView};
use hayward_service::{Client, ClientError};
use hayward_testkit::until_within;
use hayward_tests_fleet::{
    Agent, Pace, TestFleet, Witness, all_right, ends, is_running, job, outcomes, reaches, service,
    submit,
};
use hayward_vocabulary::{AllocationId, Size, WorkId};
use http::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(2);
const GIB: u64 = 1 << 30;
const TASKS: u64 = 600;
/// Processes that fit on one node.
const EACH: usize = 4;

struct Story {
    fleet: TestFleet,
    ada: Client,
    job: WorkId,
}

impl Story {
    /// Returns the processes of the job that have not ended, with their nodes.
    async fn processes(&self) -> Vec<(AllocationId, String)> {
        let path = format!("/v1/jobs/{}", self.job);
        let view: WorkView = self.ada.get(&path).await.expect("a view");
        let all = view.processes.into_iter();
        let all = all.filter(|it| it.state == "running");
        all.map(|it| (it.allocation, it.node.to_string())).collect()
    }

    /// Waits until the processes of the job are as wanted.
    async fn until(&self, what: &str, good: impl Fn(&[(AllocationId, String)]) -> bool) {
        until_within(what, LIMIT, async || {
            good(&self.processes().await).then_some(())
        })
        .await;
    }

    /// Marks the target of this route, and waits until the mark is in force.
    async fn mark(&self, route: &str) {
        let client = self.fleet.client("blocklist", "operator");
        let path = format!("/v1/blocklist/{route}");
        let order = json!({
            "action": "MARK_BLOCKLISTED", "cause": "bad memory", "duration_ms": 600_000,
        });
        let _: Value = client.put(&path, &order).await.expect("taken");
        until_within("the mark to be in force", LIMIT, async || {
            let view: Value = client.get(&path).await.ok()?;
            let known: InForce = serde_json::from_value(view["in_force"].clone()).ok()?;
            Some(known)
        })
        .await;
    }

    async fn ran_on(&self, node: &str) -> usize {
        let all = outcomes(&self.ada, &self.job).await;
        all.iter().filter(|it| it.node.as_str() == node).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_many_tasks_leaves_a_marked_node_and_a_marked_worker() {
    let mut fleet = TestFleet::at(Pace::patient()).await;
    for name in ["node-1", "node-2"] {
        fleet.start_agent(name, &Agent::default());
    }
    fleet.nodes_take_work(2).await;
    let ada = fleet.client("job-converter", "user-ada");
    let witness = Witness::new(fleet.dir.path());
    let mut work = job(&[], TASKS);
    work.command = witness.command("0.5");
    work.size = Some(Size::memory(GIB));
    let job = submit(&ada, "jobs", &work).await;
    let story = Story { fleet, ada, job };
    let on = |all: &[(AllocationId, String)], node: &str| {
        all.iter().filter(|(_, it)| it == node).count()
    };
    story
        .until("both nodes in use", |all| {
            on(all, "node-1") == EACH && on(all, "node-2") == EACH
        })
        .await;

    story.mark("nodes/node-1").await;
    let before = story.ran_on("node-1").await;
    story
        .until("the marked node to be left", |all| on(all, "node-1") == 0)
        .await;
    // Each process finishes its current task and may begin one more.
    let after = story.ran_on("node-1").await - before;
    println!("{after} tasks ended there since the mark, of {EACH} processes");
    assert!(
        after <= 3 * EACH,
        "{after} tasks ended there since the mark"
    );
    let path = format!("/v1/jobs/{}", story.job);
    let view: WorkView = story.ada.get(&path).await.expect("a view");
    let left = view.tasks.expect("tasks").waiting;
    assert!(left > 0, "the job has to outlast the mark: {view:?}");

    // A marked worker ends in the same way, and another process of the job replaces it.
    let workers = story.processes().await;
    let worker = workers.first().expect("one of them").0.clone();
    story.mark(&format!("workers/{worker}")).await;
    story
        .until("another one in its place", |all| {
            let known: BTreeSet<&AllocationId> = workers.iter().map(|(id, _)| id).collect();
            let there = |id: &AllocationId| all.iter().any(|(other, _)| other == id);
            let fresh = all.iter().any(|(id, _)| !known.contains(id));
            !there(&worker) && fresh && on(all, "node-2") == EACH
        })
        .await;

    let over = ends(&story.ada, &story.job, LIMIT).await;
    assert_eq!(over.state, WorkState::Completed, "{over:?}");
    all_right(&outcomes(&story.ada, &story.job).await, TASKS);
    for task in 0..TASKS {
        assert_eq!(witness.times(task), 1, "task {task} ran more than once");
    }
}

/// Starts a service on the only node that ignores the polite request to end.
async fn stubborn(fleet: &TestFleet) -> (Client, WorkId) {
    let ada = fleet.client("job-converter", "user-ada");
    let script = "trap '' TERM; while :; do sleep 1; done";
    let work = submit(&ada, "services", &service(&["sh", "-c", script], 1)).await;
    reaches(&ada, &format!("/v1/services/{work}"), LIMIT, is_running).await;
    (ada, work)
}

async fn container_is(fleet: &TestFleet, work: &WorkId, wanted: ContainerState) -> ContainerView {
    let client = fleet.client("container-manager", "operator");
    let path = format!("/v1/containers?work={work}.0");
    until_within(
        &format!("the container to be {wanted:?}"),
        LIMIT,
        async || {
            let list: ContainerList = client.get(&path).await.ok()?;
            let mut all = list.containers.into_iter();
            all.find(|it| it.entry.state == wanted)
        },
    )
    .await
}

async fn node_is(fleet: &TestFleet, wanted: Health) {
    let client = fleet.client("node-status", "operator");
    until_within(&format!("the node to be {wanted:?}"), LIMIT, async || {
        let view: NodeView = client.get("/v1/nodes/node-1").await.ok()?;
        (view.entry.health == wanted).then_some(())
    })
    .await;
}

async fn cancel(ada: &Client, work: &WorkId) {
    let path = format!("/v1/services/{work}");
    let call = ada.call(Method::DELETE, path).if_match_any();
    let _: Value = call.send().await.expect("cancelled");
}

/// Waits until no publication mentions the work any more.
async fn nothing_is_left(fleet: &TestFleet) {
    for (service, reader, name) in [
        ("container-manager", "rm-scheduler", "containers"),
        ("rm-scheduler", "container-manager", "allocations"),
        ("rm-scheduler", "container-manager", "closed"),
    ] {
        let client = fleet.client(service, reader);
        let path = format!("/v1/{name}/publication");
        until_within(&format!("no {name}"), LIMIT, async || {
            let all: Value = client.get(&path).await.ok()?;
            let none = all["changed"].as_object()?.is_empty();
            none.then_some(())
        })
        .await;
    }
}

async fn forget(fleet: &TestFleet) {
    let client = fleet.client("node-status", "operator");
    let call = client.call(Method::DELETE, "/v1/nodes/node-1");
    let gone: Result<Option<()>, ClientError> = call.if_match_any().send().await;
    gone.expect("a lost node is forgotten");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_cancelled_on_a_silent_node_ends_with_the_node() {
    let fleet = TestFleet::with_agents(1).await;
    let (ada, work) = stubborn(&fleet).await;
    fleet.signal("node-1", Signal::SIGSTOP);
    node_is(&fleet, Health::Suspect).await;
    cancel(&ada, &work).await;
    container_is(&fleet, &work, ContainerState::Stopping).await;
    node_is(&fleet, Health::Lost).await;
    container_is(&fleet, &work, ContainerState::Ended).await;
    nothing_is_left(&fleet).await;
    forget(&fleet).await;
    // The node returns and ends work that no service knows any more.
    fleet.signal("node-1", Signal::SIGCONT);
    fleet.nodes_take_work(1).await;
    until_within("nothing to run there", LIMIT, async || {
        (fleet.alive("node-1", "") == 0).then_some(())
    })
    .await;
    nothing_is_left(&fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_withdrawn_just_before_its_node_is_lost_ends_with_the_node() {
    let mut fleet = TestFleet::with_agents(1).await;
    let (ada, work) = stubborn(&fleet).await;
    cancel(&ada, &work).await;
    container_is(&fleet, &work, ContainerState::Stopping).await;
    fleet.lose("node-1");
    node_is(&fleet, Health::Lost).await;
    container_is(&fleet, &work, ContainerState::Ended).await;
    nothing_is_left(&fleet).await;
    forget(&fleet).await;
}
