//! A node with good heartbeats that starts no container is found by evidence. It is blocked for
//! longer each time, and returns through a trial when it works again. If many nodes turn bad, at
//! most the allowed part of a pool is withheld (W6).

use std::time::Duration;

use hayward_blocklist_api::{
    BlockChange, BlockEvent, BlockHistory, BlockOverview, BlockView, Evidence,
};
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, Pace, TestFleet, service, submit};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(2);
const NODES: u32 = 5;
/// Number of allocations that fit on one node.
const PLACES: u32 = 4;
/// Node that is broken from the start.
const GREY: &str = "node-3";
/// Node that breaks while the other is blocked. One of five nodes may be withheld.
const SECOND: &str = "node-4";
const BLOCK_MS: u64 = 1_000;

/// Returns an agent with good heartbeats on which every launch fails.
fn broken() -> Agent {
    Agent {
        helper: Some("/nonexistent"),
        ..Agent::default()
    }
}

struct Story {
    fleet: TestFleet,
    blocks: Client,
    scheduler: Client,
}

impl Story {
    async fn new() -> Self {
        let mut fleet = TestFleet::at(Pace::patient()).await;
        for number in 1..=NODES {
            let node = format!("node-{number}");
            let agent = if node == GREY {
                broken()
            } else {
                Agent::default()
            };
            fleet.start_agent(&node, &agent);
        }
        fleet.nodes_take_work(NODES as usize).await;
        Self {
            blocks: fleet.client("blocklist", "operator"),
            scheduler: fleet.client("rm-scheduler", "operator"),
            fleet,
        }
    }

    /// Returns the present block or trial of the broken node. One of five nodes may be withheld, so
    /// no other node is ever blocked.
    async fn current_block(&self) -> Option<BlockView> {
        let overview = self.blocks.get::<BlockOverview>("/v1/blocklist").await;
        let mut nodes = overview.expect("an overview").nodes.into_iter();
        let grey = nodes.next();
        assert!(nodes.next().is_none(), "more than a fifth of the pool");
        if let Some(view) = &grey {
            assert_eq!(view.item.identifier, GREY, "{view:?}");
        }
        grey
    }

    /// Returns the allocations on the broken node.
    async fn there(&self) -> Vec<AllocationView> {
        let list: AllocationList = self
            .scheduler
            .get("/v1/allocations?limit=1000")
            .await
            .expect("a list");
        let there = |it: &AllocationView| it.node.as_str() == GREY && it.exit.is_none();
        list.allocations.into_iter().filter(there).collect()
    }

    /// Asserts that a node on trial gets one new allocation at a time.
    async fn one_at_a_time(&self) {
        let Some(before) = self.current_block().await.filter(|view| view.item.canary) else {
            return;
        };
        let mut there = self.there().await;
        // The trial has not changed, so every allocation since its start was granted on trial.
        if self
            .current_block()
            .await
            .is_some_and(|now| now.item == before.item)
        {
            there.retain(|it| it.granted_at > before.item.start);
            assert!(there.len() <= 1, "{before:?} {there:#?}");
        }
    }

    /// Waits until `probe` finds something, and checks all the time that the rules hold.
    async fn until<T>(&self, what: &str, probe: impl AsyncFn() -> Option<T>) -> T {
        until_within(what, LIMIT, async || {
            self.one_at_a_time().await;
            probe().await
        })
        .await
    }

    async fn evidence(&self, node: &str) -> Evidence {
        let path = format!("/v1/blocklist/nodes/{node}/evidence");
        self.blocks.get(&path).await.expect("evidence")
    }

    /// Returns the history of the broken node, the oldest entry first.
    async fn history(&self) -> Vec<BlockChange> {
        let path = "/v1/blocklist/history?limit=1000";
        let history: BlockHistory = self.blocks.get(path).await.expect("a history");
        history.changes.into_iter().rev().collect()
    }

    /// Returns the lengths of the blocks of the broken node in milliseconds.
    async fn lengths(&self) -> Vec<u64> {
        let changes = self.history().await;
        let added = changes.iter().filter(|it| it.event == BlockEvent::Added);
        added
            .filter_map(|it| Some(it.item.end?.ms_since(it.item.start)))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_node_is_found_blocked_tried_and_returned() {
    let mut story = Story::new().await;
    let strategy = json!({
        "name": "start-failures", "parameters": { "n": 2, "duration_ms": BLOCK_MS },
    });
    let _: Value = story
        .blocks
        .put("/v1/blocklist/strategy", &strategy)
        .await
        .expect("chosen");
    // Work for all space runs for as long as the test takes.
    let ada = story.fleet.client("job-converter", "user-ada");
    let wanted = service(&["sleep", "1000"], NODES * PLACES);
    submit(&ada, "services", &wanted).await;

    // The node is found within a few launches and blocked for a while, without an operator.
    let blocked = || async { story.current_block().await.filter(|view| !view.item.canary) };
    let block = story.until("the grey node to be blocked", blocked).await;
    assert!(block.item.automatic && block.left_ms.is_some(), "{block:?}");
    let evidence = story.evidence(GREY).await;
    let lost = evidence.cost.attempts_lost;
    assert!((2..=16).contains(&lost), "a few launches: {evidence:#?}");
    assert_eq!(evidence.cost.quanta_withheld, u64::from(PLACES));
    assert!(evidence.scores[0].threshold == 2, "{evidence:#?}");

    // The node fails on trial as long as it is broken, and each block is twice as long.
    let three = || async { Some(story.lengths().await).filter(|it| it.len() >= 3) };
    let lengths = story.until("two more blocks", three).await;
    let doubled: Vec<u64> = (0..lengths.len()).map(|it| BLOCK_MS << it).collect();
    assert_eq!(lengths, doubled);

    // Another node breaks. A brake explains why it is not blocked.
    story.fleet.lose(SECOND);
    story.fleet.start_agent(SECOND, &broken());
    let held = || async { story.evidence(SECOND).await.withheld };
    let held = story.until("a brake to hold", held).await;
    assert!(
        held.contains("20 % or 1") && held.contains("1 are"),
        "{held}"
    );

    // Repaired nodes return after one trial.
    for node in [SECOND, GREY] {
        story.fleet.kill(node);
        story.fleet.start_agent(node, &Agent::default());
    }
    let passed = || async {
        let last = story.history().await.pop()?;
        (last.event == BlockEvent::TrialPassed).then_some(())
    };
    story.until("its trial to be passed", passed).await;
    assert!(story.current_block().await.is_none());
    let full = || async { Some(story.there().await).filter(|it| it.len() == PLACES as usize) };
    story.until("every place of it to be used", full).await;
}
