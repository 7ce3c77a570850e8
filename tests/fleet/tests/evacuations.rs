//! A live service leaves its node by a drain and by a graceful block. Space for its successor is
//! reserved before it is vacated. It is unavailable only for the change-over, and its end is not
//! counted as a failure.

use std::collections::BTreeMap;
use std::time::Duration;

use hayward_blocklist_api::{EvacuationPolicy, Evidence};
use hayward_job_converter_api::processors::RetriesSubmission;
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_node_status_api::drain::{DrainRequest, DrainState, DrainView};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::{Client, Clock as _, SystemClock};
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, Echo, Pace, TestFleet, reaches, service, submit};
use hayward_vocabulary::{NodeName, Size, WorkId};
use http::Method;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const GIB: u64 = 1 << 30;

struct Story {
    fleet: TestFleet,
    ada: Client,
    echo: Echo,
    service: WorkId,
}

impl Story {
    /// Starts two nodes and a service without retries, which a counted failure would end.
    async fn new() -> Self {
        Self::upon(TestFleet::at(Pace::patient()).await).await
    }

    async fn upon(mut fleet: TestFleet) -> Self {
        for name in ["node-1", "node-2"] {
            fleet.start_agent(name, &Agent::default());
        }
        fleet.nodes_take_work(2).await;
        let ada = fleet.client("job-converter", "user-ada");
        let echo = Echo::new();
        let command = echo.command();
        let mut wanted = service(&command.each_ref().map(String::as_str), 1);
        wanted.size = Some(Size::memory(GIB));
        wanted.retries = Some(RetriesSubmission {
            count: 0,
            ..RetriesSubmission::default()
        });
        let service = submit(&ada, "services", &wanted).await;
        Self {
            fleet,
            ada,
            echo,
            service,
        }
    }

    async fn is_up(&self, but_not_on: Option<&NodeName>) -> (NodeName, u64) {
        let path = format!("/v1/services/{}", self.service);
        let elsewhere = |view: &WorkView| {
            let mut all = view.processes.iter();
            let there = all.next().filter(|_| all.next().is_none());
            there.is_some_and(|it| it.state == "running" && Some(&it.node) != but_not_on)
        };
        let view = reaches(&self.ada, &path, LIMIT, elsewhere).await;
        assert_eq!(view.state, WorkState::Running, "{view:?}");
        let pid = until_within("an answer", LIMIT, async || self.echo.ask()).await;
        (view.processes[0].node.clone(), pid)
    }

    async fn allocations(&self) -> Option<Vec<AllocationEntry>> {
        let client = self.fleet.client("rm-scheduler", "container-manager");
        let path = "/v1/allocations/publication";
        let mut all: Value = client.get(path).await.ok()?;
        let all: BTreeMap<String, AllocationEntry> =
            serde_json::from_value(all["changed"].take()).expect("allocations");
        Some(all.into_values().collect())
    }

    /// Returns the allocation that leaves and its successor.
    async fn both(&self) -> (AllocationEntry, AllocationEntry) {
        until_within("the next place", LIMIT, async || {
            let all = self.allocations().await?;
            let old = all.iter().find(|it| it.vacate.is_some())?;
            let follows = |it: &&AllocationEntry| it.predecessor.as_ref() == Some(&old.id);
            let new = all.iter().find(follows)?;
            Some((old.clone(), new.clone()))
        })
        .await
    }

    /// Gives the order while container-manager is stopped and cannot pass it on, so that the
    /// reservation can be observed.
    async fn reserves_first(&self, from: &NodeName, pid: u64, order: impl AsyncFnOnce()) {
        self.fleet.signal("container-manager", Signal::SIGSTOP);
        order().await;
        let (old, new) = self.both().await;
        let order = old.vacate.expect("an order to leave");
        assert!(old.node == *from && new.node != *from);
        assert!(new.granted_at <= order.since, "{new:?} {order:?}");
        assert!(!order.detail.contains("no next place"), "{order:?}");
        assert_eq!(self.echo.ask(), Some(pid), "it is not told to leave yet");
        let echo = self.echo;
        let asking = tokio::task::spawn_blocking(move || echo.keep_asking(pid, LIMIT));
        self.fleet.signal("container-manager", Signal::SIGCONT);
        let seen = asking.await.expect("requests were sent");
        assert_ne!(seen.last, pid, "its successor answers");
        println!(
            "from {from} to {}: away for {:?} ({} answers)",
            new.node, seen.away, seen.answers
        );
    }

    async fn counts_no_failure(&self) {
        let client = self.fleet.client("blocklist", "operator");
        for node in ["node-1", "node-2"] {
            let path = format!("/v1/blocklist/nodes/{node}/evidence");
            let evidence: Evidence = client.get(&path).await.expect("evidence");
            let blames = evidence.facts.iter().any(|it| it.counted);
            assert!(!blames, "{evidence:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_and_a_graceful_block_reserve_first() {
    let story = Story::new().await;
    let (first, pid) = story.is_up(None).await;
    let nodes = story.fleet.client("node-status", "operator");
    let drain = format!("/v1/nodes/{first}/drain");
    story
        .reserves_first(&first, pid, async || {
            let request = DrainRequest {
                reason: Some("new disk".to_owned()),
                ..DrainRequest::default()
            };
            let put = nodes.call(Method::PUT, &drain).body(&request);
            let begun: DrainView = put.if_match_any().send().await.expect("taken");
            assert_eq!(begun.state, DrainState::Draining);
        })
        .await;
    let (second, pid) = story.is_up(Some(&first)).await;
    until_within("the node to be drained", LIMIT, async || {
        let view: DrainView = nodes.get(&drain).await.ok()?;
        (view.state == DrainState::Drained).then_some(())
    })
    .await;
    let end = nodes.call(Method::DELETE, &drain).if_match_any();
    let over: DrainView = end.send().await.expect("cancelled");
    assert_eq!(over.state, DrainState::Cancelled);
    story.fleet.nodes_take_work(2).await;

    let blocks = story.fleet.client("blocklist", "operator");
    story
        .reserves_first(&second, pid, async || {
            let order = json!({
                "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS",
                "cause": "ECC errors",
                "duration_ms": 600_000,
                "evacuation": EvacuationPolicy::Graceful { grace_ms: 600_000 },
            });
            let path = format!("/v1/blocklist/nodes/{second}");
            let _: Value = blocks.put(&path, &order).await.expect("taken");
        })
        .await;
    let (last, _) = story.is_up(Some(&second)).await;
    assert_eq!(last, first);
    story.counts_no_failure().await;
}

/// An item whose end has passed has its full effect once and is removed at the next check. The next
/// check comes late in this test, so that even a slow machine sees the item before (blocklist,
/// Time).
#[tokio::test(flavor = "multi_thread")]
async fn a_past_evacuation_moves_processes_once() {
    let check = ("HAYWARD_BLOCKLIST_CHECK_INTERVAL_MS", "20000".to_owned());
    let story = Story::upon(TestFleet::set(Pace::patient(), vec![check]).await).await;
    let (first, pid) = story.is_up(None).await;
    let blocks = story.fleet.client("blocklist", "operator");
    let path = format!("/v1/blocklist/nodes/{first}");
    let order = json!({
        "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS",
        "cause": "ECC errors",
        "end_timestamp": SystemClock.now().minus_ms(60_000),
    });
    let _: Value = blocks.put(&path, &order).await.expect("taken");
    let (second, after) = story.is_up(Some(&first)).await;
    assert_ne!((&first, pid), (&second, after));
    until_within("the next check", LIMIT, async || {
        let view = blocks.get::<Value>(&path).await;
        let gone = view.err()?.problem()?.status() == 404;
        gone.then_some(())
    })
    .await;
    let (still, same) = story.is_up(None).await;
    assert_eq!((second, after), (still, same), "it was moved once");
    story.counts_no_failure().await;
}
