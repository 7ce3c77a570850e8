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
    Agent, TaskRunCounter, TestFleet, Timing, assert_all_succeeded, job, service, submit,
    task_outcomes, wait_for_end, wait_for_view,
};
use hayward_vocabulary::{NodeName, WorkId};
use http::Method;

const LIMIT: Duration = Duration::from_mins(1);
/// Number of instances of the service. The three nodes get at least one each. The disruption limit
/// of the service allows one of all instances to be moved at a time.
const INSTANCES: u32 = 6;
const TASKS: u64 = 300;
/// Quanta of all nodes: three nodes of 6 GiB.
const FLEET_QUANTA: u64 = 18;
/// Text in the arguments of every process of the service.
const PROCESS_LABEL: &str = "lighthouse";

fn large_agent() -> Agent {
    Agent {
        memory_bytes: 6 << 30,
        ..Agent::default()
    }
}

fn running_processes(view: &WorkView) -> impl Iterator<Item = &ProcessView> {
    view.processes.iter().filter(|it| it.state == "running")
}

struct Setup {
    fleet: TestFleet,
    ada: Client,
    node_status: Client,
    service: WorkId,
    job: WorkId,
    runs: TaskRunCounter,
    /// The node to be drained.
    node: NodeName,
}

impl Setup {
    /// Starts three nodes with space for the work of two, and a service and a job on all of them.
    async fn new() -> Self {
        let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
        for number in 1..=3 {
            fleet.start_agent(&format!("node-{number}"), &large_agent());
        }
        fleet.wait_until_nodes_take_work(3).await;
        // Instances go to different nodes if they can, so all nodes must be known before.
        let scheduler = fleet.client("rm-scheduler", "operator");
        until_within("the space of all nodes to be known", LIMIT, async || {
            let shares: Shares = scheduler.get("/v1/shares").await.ok()?;
            (shares.capacity == FLEET_QUANTA).then_some(())
        })
        .await;
        let ada = fleet.client("job-converter", "user-ada");
        let node_status = fleet.client("node-status", "operator");
        // The program takes some time to end after the request to stop.
        let script = format!(
            ": {PROCESS_LABEL}; trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.1; done"
        );
        let mut submission = service(&["sh", "-c", &script], INSTANCES);
        submission.disruption_limit = Some(1);
        let service = submit(&ada, "services", &submission).await;
        let runs = TaskRunCounter::new(fleet.dir.path());
        let mut work = job(&[], TASKS);
        work.command = runs.command("0.2");
        work.max_processes = Some(6);
        let job = submit(&ada, "jobs", &work).await;
        let path = format!("/v1/services/{service}");
        let service_view = wait_for_view(&ada, &path, LIMIT, |view| {
            running_processes(view).count() == INSTANCES as usize
        })
        .await;
        let has_several_instances = |node: &NodeName| {
            running_processes(&service_view)
                .filter(|it| it.node == *node)
                .count()
                > 1
        };
        let job_view = wait_for_view(&ada, &format!("/v1/jobs/{job}"), LIMIT, |view| {
            running_processes(view).any(|it| has_several_instances(&it.node))
        })
        .await;
        let mut job_nodes = running_processes(&job_view).map(|it| it.node.clone());
        let node = job_nodes
            .find(has_several_instances)
            .expect("a node with both");
        Self {
            fleet,
            ada,
            node_status,
            service,
            job,
            runs,
            node,
        }
    }

    fn drain_path(&self) -> String {
        format!("/v1/nodes/{}/drain", self.node)
    }

    async fn drain(&self, request: &DrainRequest) -> DrainView {
        let call = self
            .node_status
            .call(Method::PUT, self.drain_path())
            .body(request);
        call.if_match_any().send().await.expect("accepted")
    }

    async fn pause(&self, paused: bool) -> DrainView {
        let request = DrainRequest {
            paused: Some(paused),
            ..DrainRequest::default()
        };
        self.drain(&request).await
    }

    async fn preview(&self) -> DrainPreview {
        let request = WhatIf {
            drain: vec![self.node.clone()],
            ..WhatIf::default()
        };
        let scheduler = self.fleet.client("rm-scheduler", "operator");
        let forecast: Forecast = scheduler
            .post("/v1/what-if", &request, None)
            .await
            .expect("a forecast");
        forecast.drains.into_iter().next().expect("the node")
    }

    /// Waits for a state of the drain, and checks all the time that no more instances are missing
    /// than allowed.
    async fn wait_for(
        &self,
        description: &str,
        is_expected: impl Fn(&DrainView) -> bool,
    ) -> DrainView {
        until_within(description, LIMIT, async || {
            let alive = self.fleet.count_processes(PROCESS_LABEL);
            assert!(
                alive + 1 >= INSTANCES as usize,
                "{alive} of {INSTANCES} alive"
            );
            let view = self
                .node_status
                .get::<DrainView>(&self.drain_path())
                .await
                .ok()?;
            is_expected(&view).then_some(view)
        })
        .await
    }

    /// Asserts that the preview lists the moves with their users and disruption limits, and changes
    /// nothing.
    async fn assert_previewed(&self) {
        let preview = self.preview().await;
        let moves_of = |work: &WorkId| {
            let moves = preview.moves.iter().filter(|it| it.work.parent() == *work);
            moves.collect::<Vec<_>>()
        };
        let (service_moves, job_moves) = (moves_of(&self.service), moves_of(&self.job));
        assert!(
            service_moves.len() >= 2 && !job_moves.is_empty(),
            "{preview:#?}"
        );
        assert!(
            service_moves
                .iter()
                .all(|it| it.disruption_limit == Some(1))
        );
        let is_other_node = |to: &Option<NodeName>| to.as_ref().is_some_and(|to| *to != self.node);
        assert!(
            preview.moves.iter().all(|it| is_other_node(&it.to)),
            "{preview:#?}"
        );
        assert!(preview.moves.iter().all(|it| it.user.as_str() == "ada"));
        assert!(preview.stays.is_empty() && preview.without_room == 0);
        let before: Result<DrainView, _> = self.node_status.get(&self.drain_path()).await;
        assert!(before.is_err(), "a preview drains nothing: {before:?}");
    }

    /// Cancels the drain, and waits until the node takes work again.
    async fn cancel_drain(&self) {
        let call = self.node_status.call(Method::DELETE, self.drain_path());
        let cancelled: DrainView = call.if_match_any().send().await.expect("cancelled");
        assert_eq!(cancelled.state, DrainState::Cancelled);
        let mut submission = service(&["sleep", "1000"], 1);
        submission.machines = vec![self.node.clone()];
        let service_id = submit(&self.ada, "services", &submission).await;
        let path = format!("/v1/services/{service_id}");
        wait_for_view(&self.ada, &path, LIMIT, |view| {
            running_processes(view).count() == 1
        })
        .await;
    }

    fn count_alive(&self) -> usize {
        self.fleet.count_processes_on(self.node.as_str(), "")
    }
}

/// Returns whether all remaining work stays because of the pause, and the agent has reported its
/// containers.
fn is_fully_paused(view: &DrainView) -> bool {
    let moves = view.moves.as_ref();
    let all_paused = moves.is_some_and(|moves| {
        let paused = moves.blockers.iter().filter(|it| it.why == "paused");
        moves.remaining > 0 && paused.count() as u64 == moves.remaining
    });
    all_paused && view.state == DrainState::Paused && view.containers.is_some_and(|it| it > 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_completes_after_a_pause_and_kills_of_its_service_and_agent() {
    let mut setup = Setup::new().await;

    setup.assert_previewed().await;
    let started = setup
        .drain(&DrainRequest {
            reason: Some("new disk".to_owned()),
            deadline_ms: Some(600_000),
            ..DrainRequest::default()
        })
        .await;
    assert_eq!(started.state, DrainState::Draining);
    assert!(started.order.deadline.is_some());
    let has_moves = |view: &DrainView| view.moves.as_ref().is_some_and(|it| it.moved > 0);
    setup.wait_for("something to be moved", has_moves).await;

    // The pause comes half-way, with at least one instance left.
    let paused = setup.pause(true).await;
    assert_eq!(paused.state, DrainState::Paused, "{paused:?}");
    let before = setup.wait_for("a full pause", is_fully_paused).await;
    let node = setup.node.to_string();
    setup.fleet.kill("node-status");
    setup.fleet.kill(&node);
    setup.fleet.start_service("node-status");
    setup.fleet.start_agent(&node, &large_agent());
    setup.fleet.wait_until_services_are_ready().await;
    let after = setup.wait_for("the same pause", is_fully_paused).await;
    assert_eq!(after.order, before.order, "no order is lost");
    let counts = |view: &DrainView| view.moves.as_ref().map(|it| (it.total, it.remaining));
    assert_eq!(counts(&after), counts(&before), "and nothing has moved");
    assert!(setup.count_alive() > 0);

    let resumed = setup.pause(false).await;
    assert_eq!(resumed.state, DrainState::Draining, "{resumed:?}");
    let drained = setup
        .wait_for("the node to be empty", |view| {
            let alive = setup.count_alive();
            let is_drained = view.state == DrainState::Drained;
            // The node gets no new work, so a process that is alive now was alive at the report.
            assert!(
                !is_drained || alive == 0,
                "{alive} alive on a drained node: {view:#?}"
            );
            is_drained
        })
        .await;
    assert_eq!(drained.containers, Some(0), "{drained:#?}");
    // The last instance starts on another node after it has ended here.
    let settled = setup
        .wait_for("everything to run elsewhere", |view| {
            let moves = view.moves.as_ref();
            moves.is_some_and(|it| it.moved == it.total)
        })
        .await;
    assert_eq!(settled.state, DrainState::Drained);
    let moves = settled.moves.expect("a number from the scheduler");
    assert_eq!((moves.remaining, moves.failed), (0, 0), "{moves:#?}");
    assert!(moves.total >= 3, "{moves:#?}");
    let view: NodeView = setup
        .node_status
        .get(&format!("/v1/nodes/{node}"))
        .await
        .expect("a node");
    assert!(!view.entry.takes_work() && view.drain_state == Some(DrainState::Drained));

    setup.cancel_drain().await;
    let view = wait_for_end(&setup.ada, &setup.job, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    assert_all_succeeded(&task_outcomes(&setup.ada, &setup.job).await, TASKS);
    let repeated = (0..TASKS)
        .filter(|task| setup.runs.count(*task) > 1)
        .count();
    assert!(
        repeated <= 6,
        "{repeated} tasks ran again: more than were cut short"
    );
}
