//! A live service leaves its node by a drain and by a graceful block. Space for its successor is
//! reserved before it is vacated. It is unavailable only for the change-over, and its end is not
//! counted as a failure.

use std::collections::BTreeMap;
use std::time::Duration;

use hayward_blocklist_api::{EvacuationPolicy, Evidence};
use hayward_job_converter_api::service_processors::RetriesSubmission;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::{Client, Clock as _, SystemClock};
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, Echo, TestFleet, Timing, service, submit, wait_for_view};
use hayward_vocabulary::{NodeName, Size, WorkId};
use http::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const GIB: u64 = 1 << 30;

struct Setup {
    fleet: TestFleet,
    ada: Client,
    echo: Echo,
    service: WorkId,
}

impl Setup {
    /// Starts two nodes and a service without retries, which a counted failure would end.
    async fn new() -> Self {
        Self::with_fleet(TestFleet::start_with_timing(Timing::without_node_loss()).await).await
    }

    async fn with_fleet(mut fleet: TestFleet) -> Self {
        for name in ["node-1", "node-2"] {
            fleet.start_agent(name, &Agent::default());
        }
        fleet.wait_until_nodes_take_work(2).await;
        let ada = fleet.client("job-converter", "user-ada");
        let echo = Echo::new();
        let command = echo.command();
        let mut submission = service(&command.each_ref().map(String::as_str), 1);
        submission.size = Some(Size::memory(GIB));
        submission.retries = Some(RetriesSubmission {
            count: 0,
            ..RetriesSubmission::default()
        });
        let service = submit(&ada, "services", &submission).await;
        Self {
            fleet,
            ada,
            echo,
            service,
        }
    }

    /// Waits until the service runs as one process on another node than `excluded`. Returns the
    /// node and the pid.
    async fn wait_until_running(&self, excluded: Option<&NodeName>) -> (NodeName, u64) {
        let path = format!("/v1/services/{}", self.service);
        let runs_on_other_node = |view: &WorkView| {
            let mut processes = view.processes.iter();
            let only_process = processes.next().filter(|_| processes.next().is_none());
            only_process.is_some_and(|it| it.state == "running" && Some(&it.node) != excluded)
        };
        let view = wait_for_view(&self.ada, &path, LIMIT, runs_on_other_node).await;
        assert_eq!(view.state, WorkState::Running, "{view:?}");
        let pid = until_within("an answer", LIMIT, async || self.echo.request_pid()).await;
        (view.processes[0].node.clone(), pid)
    }

    async fn allocations(&self) -> Option<Vec<AllocationEntry>> {
        let client = self.fleet.client("rm-scheduler", "container-manager");
        let path = "/v1/allocations/publication";
        let mut publication: Value = client.get(path).await.ok()?;
        let allocations: BTreeMap<String, AllocationEntry> =
            serde_json::from_value(publication["changed"].take()).expect("allocations");
        Some(allocations.into_values().collect())
    }

    /// Returns the allocation that leaves and its successor.
    async fn allocation_and_successor(&self) -> (AllocationEntry, AllocationEntry) {
        until_within("a successor", LIMIT, async || {
            let allocations = self.allocations().await?;
            let old = allocations.iter().find(|it| it.vacate.is_some())?;
            let is_successor = |it: &&AllocationEntry| it.predecessor.as_ref() == Some(&old.id);
            let new = allocations.iter().find(is_successor)?;
            Some((old.clone(), new.clone()))
        })
        .await
    }

    /// Starts the move while container-manager is stopped and cannot forward it, so that the
    /// reservation can be observed.
    async fn assert_reserved_before_vacated(
        &self,
        from: &NodeName,
        pid: u64,
        start_move: impl AsyncFnOnce(),
    ) {
        self.fleet.signal("container-manager", Signal::SIGSTOP);
        start_move().await;
        let (old, new) = self.allocation_and_successor().await;
        let vacate = old.vacate.expect("a vacated allocation");
        assert!(old.node == *from && new.node != *from);
        assert!(new.granted_at <= vacate.since, "{new:?} {vacate:?}");
        assert!(!vacate.detail.contains("no next place"), "{vacate:?}");
        assert_eq!(
            self.echo.request_pid(),
            Some(pid),
            "the process has not been stopped yet"
        );
        let echo = self.echo;
        let client = tokio::task::spawn_blocking(move || echo.measure_availability(pid, LIMIT));
        self.fleet.signal("container-manager", Signal::SIGCONT);
        let availability = client.await.expect("requests were sent");
        assert_ne!(availability.last_pid, pid, "the successor answers");
        println!(
            "from {from} to {}: away for {:?} ({} answers)",
            new.node, availability.longest_gap, availability.response_count
        );
    }

    async fn assert_no_failure_is_counted(&self) {
        let client = self.fleet.client("blocklist", "operator");
        for node in ["node-1", "node-2"] {
            let path = format!("/v1/blocklist/nodes/{node}/evidence");
            let evidence: Evidence = client.get(&path).await.expect("evidence");
            let has_counted_fact = evidence.facts.iter().any(|it| it.counted);
            assert!(!has_counted_fact, "{evidence:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_and_a_graceful_block_reserve_space_before_they_vacate() {
    let setup = Setup::new().await;
    let (first, pid) = setup.wait_until_running(None).await;
    let nodes = setup.fleet.client("node-status", "operator");
    let drain_path = format!("/v1/nodes/{first}/drain");
    setup
        .assert_reserved_before_vacated(&first, pid, async || {
            let request = DrainRequest {
                reason: Some("new disk".to_owned()),
                ..DrainRequest::default()
            };
            let call = nodes.call(Method::PUT, &drain_path).body(&request);
            let started: DrainView = call.if_match_any().send().await.expect("accepted");
            assert_eq!(started.state, DrainState::Draining);
        })
        .await;
    let (second, pid) = setup.wait_until_running(Some(&first)).await;
    until_within("the node to be drained", LIMIT, async || {
        let view: DrainView = nodes.get(&drain_path).await.ok()?;
        (view.state == DrainState::Drained).then_some(())
    })
    .await;
    let call = nodes.call(Method::DELETE, &drain_path).if_match_any();
    let cancelled: DrainView = call.send().await.expect("cancelled");
    assert_eq!(cancelled.state, DrainState::Cancelled);
    setup.fleet.wait_until_nodes_take_work(2).await;

    let blocks = setup.fleet.client("blocklist", "operator");
    setup
        .assert_reserved_before_vacated(&second, pid, async || {
            let request = json!({
                "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS",
                "cause": "ECC errors",
                "duration_ms": 600_000,
                "evacuation": EvacuationPolicy::Graceful { grace_ms: 600_000 },
            });
            let path = format!("/v1/blocklist/nodes/{second}");
            let _: Value = blocks.put(&path, &request).await.expect("accepted");
        })
        .await;
    let (last, _) = setup.wait_until_running(Some(&second)).await;
    assert_eq!(last, first);
    setup.assert_no_failure_is_counted().await;
}

/// An item whose end has passed has its full effect once and is removed at the next check. The next
/// check comes late in this test, so that even a slow machine sees the item before (Time in
/// `docs/spec/blocklist.md`).
#[tokio::test(flavor = "multi_thread")]
async fn an_evacuation_with_a_past_end_moves_processes_once() {
    let check = ("HAYWARD_BLOCKLIST_CHECK_INTERVAL_MS", "20000".to_owned());
    let setup = Setup::with_fleet(
        TestFleet::start_with_environment(Timing::without_node_loss(), vec![check]).await,
    )
    .await;
    let (first, pid) = setup.wait_until_running(None).await;
    let blocks = setup.fleet.client("blocklist", "operator");
    let path = format!("/v1/blocklist/nodes/{first}");
    let request = json!({
        "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS",
        "cause": "ECC errors",
        "end_timestamp": SystemClock.now().minus_ms(60_000),
    });
    let _: Value = blocks.put(&path, &request).await.expect("accepted");
    let (second, new_pid) = setup.wait_until_running(Some(&first)).await;
    assert_ne!((&first, pid), (&second, new_pid));
    until_within("the next check", LIMIT, async || {
        let view = blocks.get::<Value>(&path).await;
        let is_removed = view.err()?.problem()?.status() == 404;
        is_removed.then_some(())
    })
    .await;
    let (last, last_pid) = setup.wait_until_running(None).await;
    assert_eq!(
        (second, new_pid),
        (last, last_pid),
        "the service was moved once"
    );
    setup.assert_no_failure_is_counted().await;
}
