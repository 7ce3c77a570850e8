//! A node is emptied as the disruption limits of its work allow, through a pause and the death of
//! every service. It is drained only when no process is alive on it (I17).

use std::time::Duration;

use hayward_job_converter_api::{ProcessView, WorkState, WorkView};
use hayward_node_status_api::NodeView;
use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_rm_scheduler_api::shares::Shares;
use hayward_rm_scheduler_api::what_if::{DrainPreview, Forecast, WhatIf};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{
    Agent, Pace, TestFleet, Witness, all_right, ends, job, outcomes, reaches, service, submit,
};
use hayward_vocabulary::{NodeName, WorkId};
use http::Method;

const LIMIT: Duration = Duration::from_mins(1);
/// Number of instances. Each node gets one, and one node gets more. Only one of all may be moved at
/// a time.
const INSTANCES: u32 = 6;
const TASKS: u64 = 300;
/// A word in the arguments of every process of the service.
const MARK: &str = "lighthouse";

fn large() -> Agent {
    Agent {
        memory_bytes: 6 << 30,
        ..Agent::default()
    }
}

fn running(view: &WorkView) -> impl Iterator<Item = &ProcessView> {
    view.processes.iter().filter(|it| it.state == "running")
}

struct Story {
    fleet: TestFleet,
    ada: Client,
    nodes: Client,
    service: WorkId,
    job: WorkId,
    witness: Witness,
    /// The node to be drained.
    node: NodeName,
}

impl Story {
    /// Starts three nodes with space for the work of two, and a service and a job on all of them.
    async fn new() -> Self {
        let mut fleet = TestFleet::at(Pace::patient()).await;
        for number in 1..=3 {
            fleet.start_agent(&format!("node-{number}"), &large());
        }
        fleet.nodes_take_work(3).await;
        // Instances go to different nodes if they can, so all nodes must be known before.
        let scheduler = fleet.client("rm-scheduler", "operator");
        until_within("every place to be known", LIMIT, async || {
            let shares: Shares = scheduler.get("/v1/shares").await.ok()?;
            (shares.capacity == 18).then_some(())
        })
        .await;
        let ada = fleet.client("job-converter", "user-ada");
        let nodes = fleet.client("node-status", "operator");
        // The program takes some time to end after the request to stop.
        let script =
            format!(": {MARK}; trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.1; done");
        let mut lights = service(&["sh", "-c", &script], INSTANCES);
        lights.disruption_limit = Some(1);
        let service = submit(&ada, "services", &lights).await;
        let witness = Witness::new(fleet.dir.path());
        let mut work = job(&[], TASKS);
        work.command = witness.command("0.2");
        work.max_processes = Some(6);
        let job = submit(&ada, "jobs", &work).await;
        let path = format!("/v1/services/{service}");
        let lights = reaches(&ada, &path, LIMIT, |view| {
            running(view).count() == INSTANCES as usize
        })
        .await;
        let shared = |node: &NodeName| running(&lights).filter(|it| it.node == *node).count() > 1;
        let at_work = reaches(&ada, &format!("/v1/jobs/{job}"), LIMIT, |view| {
            running(view).any(|it| shared(&it.node))
        })
        .await;
        let mut places = running(&at_work).map(|it| it.node.clone());
        let node = places.find(shared).expect("a node with both");
        Self {
            fleet,
            ada,
            nodes,
            service,
            job,
            witness,
            node,
        }
    }

    fn path(&self) -> String {
        format!("/v1/nodes/{}/drain", self.node)
    }

    async fn drain(&self, request: &DrainRequest) -> DrainView {
        let put = self.nodes.call(Method::PUT, self.path()).body(request);
        put.if_match_any().send().await.expect("taken")
    }

    async fn pause(&self, paused: bool) -> DrainView {
        let request = DrainRequest {
            paused: Some(paused),
            ..DrainRequest::default()
        };
        self.drain(&request).await
    }

    async fn preview(&self) -> DrainPreview {
        let ask = WhatIf {
            drain: vec![self.node.clone()],
            ..WhatIf::default()
        };
        let scheduler = self.fleet.client("rm-scheduler", "operator");
        let answer: Forecast = scheduler
            .post("/v1/what-if", &ask, None)
            .await
            .expect("one");
        answer.drains.into_iter().next().expect("the node")
    }

    /// Waits for a state of the drain, and checks all the time that no more instances are missing
    /// than allowed.
    async fn comes_to(&self, what: &str, wanted: impl Fn(&DrainView) -> bool) -> DrainView {
        until_within(what, LIMIT, async || {
            let lit = self.fleet.alive_anywhere(MARK);
            assert!(lit + 1 >= INSTANCES as usize, "{lit} of {INSTANCES} alive");
            let view = self.nodes.get::<DrainView>(&self.path()).await.ok()?;
            wanted(&view).then_some(view)
        })
        .await
    }

    /// Asserts that the preview lists moves, owners and pace, and changes nothing.
    async fn is_previewed(&self) {
        let preview = self.preview().await;
        let containers_of = |work: &WorkId| {
            let of_work = preview.moves.iter().filter(|it| it.work.parent() == *work);
            of_work.collect::<Vec<_>>()
        };
        let (lights, processes) = (containers_of(&self.service), containers_of(&self.job));
        assert!(lights.len() >= 2 && !processes.is_empty(), "{preview:#?}");
        assert!(lights.iter().all(|it| it.disruption_limit == Some(1)));
        let others = |to: &Option<NodeName>| to.as_ref().is_some_and(|to| *to != self.node);
        assert!(
            preview.moves.iter().all(|it| others(&it.to)),
            "{preview:#?}"
        );
        assert!(preview.moves.iter().all(|it| it.user.as_str() == "ada"));
        assert!(preview.stays.is_empty() && preview.without_room == 0);
        let before: Result<DrainView, _> = self.nodes.get(&self.path()).await;
        assert!(before.is_err(), "a preview drains nothing: {before:?}");
    }

    /// Cancels the drain, and waits until the node takes work again.
    async fn is_taken_back(&self) {
        let end = self.nodes.call(Method::DELETE, self.path());
        let over: DrainView = end.if_match_any().send().await.expect("cancelled");
        assert_eq!(over.state, DrainState::Cancelled);
        let mut there = service(&["sleep", "1000"], 1);
        there.machines = vec![self.node.clone()];
        let there = submit(&self.ada, "services", &there).await;
        let path = format!("/v1/services/{there}");
        reaches(&self.ada, &path, LIMIT, |view| running(view).count() == 1).await;
    }

    fn alive(&self) -> usize {
        self.fleet.alive(self.node.as_str(), "")
    }
}

/// Returns whether all remaining work stays because of the pause, and the agent has reported.
fn at_rest(view: &DrainView) -> bool {
    let moves = view.moves.as_ref();
    let rests = moves.is_some_and(|moves| {
        let paused = moves.blockers.iter().filter(|it| it.why == "paused");
        moves.remaining > 0 && paused.count() as u64 == moves.remaining
    });
    rests && view.state == DrainState::Paused && view.containers.is_some_and(|it| it > 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_through_a_pause_and_two_deaths() {
    let mut story = Story::new().await;

    story.is_previewed().await;
    let begun = story
        .drain(&DrainRequest {
            reason: Some("new disk".to_owned()),
            deadline_ms: Some(600_000),
            ..DrainRequest::default()
        })
        .await;
    assert_eq!(begun.state, DrainState::Draining);
    assert!(begun.order.deadline.is_some());
    let moved = |view: &DrainView| view.moves.as_ref().is_some_and(|it| it.moved > 0);
    story.comes_to("something to be moved", moved).await;

    // The pause comes half-way, with at least one instance left.
    let paused = story.pause(true).await;
    assert_eq!(paused.state, DrainState::Paused, "{paused:?}");
    let rest = story.comes_to("rest", at_rest).await;
    let node = story.node.to_string();
    story.fleet.kill("node-status");
    story.fleet.kill(&node);
    story.fleet.start_service("node-status");
    story.fleet.start_agent(&node, &large());
    story.fleet.services_are_ready().await;
    let after = story.comes_to("the same rest", at_rest).await;
    assert_eq!(after.order, rest.order, "nothing of the order is lost");
    let left = |view: &DrainView| view.moves.as_ref().map(|it| (it.total, it.remaining));
    assert_eq!(left(&after), left(&rest), "and nothing has moved");
    assert!(story.alive() > 0);

    let resumed = story.pause(false).await;
    assert_eq!(resumed.state, DrainState::Draining, "{resumed:?}");
    let drained = story
        .comes_to("the node to be empty", |view| {
            let alive = story.alive();
            let empty = view.state == DrainState::Drained;
            // The node gets no new work, so a process that is alive now was alive at the report.
            assert!(
                !empty || alive == 0,
                "{alive} alive on a drained node: {view:#?}"
            );
            empty
        })
        .await;
    assert_eq!(drained.containers, Some(0), "{drained:#?}");
    // The last instance starts on another node after it has ended here.
    let settled = story
        .comes_to("everything to run elsewhere", |view| {
            let moves = view.moves.as_ref();
            moves.is_some_and(|it| it.moved == it.total)
        })
        .await;
    assert_eq!(settled.state, DrainState::Drained);
    let moves = settled.moves.expect("a number from the scheduler");
    assert_eq!((moves.remaining, moves.failed), (0, 0), "{moves:#?}");
    assert!(moves.total >= 3, "{moves:#?}");
    let view: NodeView = story
        .nodes
        .get(&format!("/v1/nodes/{node}"))
        .await
        .expect("it");
    assert!(!view.entry.takes_work() && view.drain_state == Some(DrainState::Drained));

    story.is_taken_back().await;
    let view = ends(&story.ada, &story.job, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&story.ada, &story.job).await, TASKS);
    let twice = (0..TASKS)
        .filter(|task| story.witness.times(*task) > 1)
        .count();
    assert!(
        twice <= 6,
        "{twice} tasks ran again: more than were cut short"
    );
}
