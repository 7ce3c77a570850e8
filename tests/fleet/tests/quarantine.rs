//! A node with good heartbeats on which every launch fails is blocked automatically. Each block is
//! longer than the one before. A repaired node returns through a trial. A brake limits the part of
//! a pool that is blocked at once (W6).

use std::time::Duration;

use hayward_blocklist_api::{
    BlockChange, BlockEvent, BlockHistory, BlockOverview, BlockView, Evidence,
};
use hayward_rm_scheduler_api::views::{AllocationList, AllocationView};
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, TestFleet, Timing, service, submit};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(2);
const NODES: u32 = 5;
/// Number of allocations that fit on one node.
const NODE_CAPACITY: u32 = 4;
/// Node that is broken from the start.
const BROKEN_NODE: &str = "node-3";
/// Node that breaks while the other is blocked. One of five nodes may be withheld.
const SECOND_BROKEN_NODE: &str = "node-4";
const BLOCK_MS: u64 = 1_000;

/// Returns an agent with good heartbeats on which every launch fails.
fn broken_agent() -> Agent {
    Agent {
        supervisor: Some("/nonexistent"),
        ..Agent::default()
    }
}

struct Setup {
    fleet: TestFleet,
    blocks: Client,
    scheduler: Client,
}

impl Setup {
    async fn new() -> Self {
        let mut fleet = TestFleet::start_with_timing(Timing::without_node_loss()).await;
        for number in 1..=NODES {
            let node = format!("node-{number}");
            let agent = if node == BROKEN_NODE {
                broken_agent()
            } else {
                Agent::default()
            };
            fleet.start_agent(&node, &agent);
        }
        fleet.wait_until_nodes_take_work(NODES as usize).await;
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
        let block = nodes.next();
        assert!(nodes.next().is_none(), "more than a fifth of the pool");
        if let Some(view) = &block {
            assert_eq!(view.item.identifier, BROKEN_NODE, "{view:?}");
        }
        block
    }

    /// Returns the allocations on the broken node.
    async fn allocations_on_broken_node(&self) -> Vec<AllocationView> {
        let list: AllocationList = self
            .scheduler
            .get("/v1/allocations?limit=1000")
            .await
            .expect("a list");
        let is_on_broken_node =
            |it: &AllocationView| it.node.as_str() == BROKEN_NODE && it.exit.is_none();
        list.allocations
            .into_iter()
            .filter(is_on_broken_node)
            .collect()
    }

    /// Asserts that a node on trial gets one new allocation at a time.
    async fn assert_one_at_a_time(&self) {
        let Some(before) = self.current_block().await.filter(|view| view.item.canary) else {
            return;
        };
        let mut allocations = self.allocations_on_broken_node().await;
        // The trial has not changed, so every allocation since its start was granted on trial.
        if self
            .current_block()
            .await
            .is_some_and(|now| now.item == before.item)
        {
            allocations.retain(|it| it.granted_at > before.item.start);
            assert!(allocations.len() <= 1, "{before:?} {allocations:#?}");
        }
    }

    /// Waits until `probe` finds something, and checks all the time that the rules hold.
    async fn until<T>(&self, description: &str, probe: impl AsyncFn() -> Option<T>) -> T {
        until_within(description, LIMIT, async || {
            self.assert_one_at_a_time().await;
            probe().await
        })
        .await
    }

    async fn evidence(&self, node: &str) -> Evidence {
        let path = format!("/v1/blocklist/nodes/{node}/evidence");
        self.blocks.get(&path).await.expect("evidence")
    }

    /// Returns the history of the blocklist, the oldest change first. Only the broken node is in
    /// it.
    async fn history(&self) -> Vec<BlockChange> {
        let path = "/v1/blocklist/history?limit=1000";
        let history: BlockHistory = self.blocks.get(path).await.expect("a history");
        history.changes.into_iter().rev().collect()
    }

    /// Returns the lengths of the blocks of the broken node in milliseconds.
    async fn block_lengths_ms(&self) -> Vec<u64> {
        let changes = self.history().await;
        let added = changes.iter().filter(|it| it.event == BlockEvent::Added);
        added
            .filter_map(|it| Some(it.item.end?.ms_since(it.item.start)))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_node_is_blocked_until_it_passes_a_trial() {
    let mut setup = Setup::new().await;
    let strategy = json!({
        "name": "start-failures", "parameters": { "n": 2, "duration_ms": BLOCK_MS },
    });
    let _: Value = setup
        .blocks
        .put("/v1/blocklist/strategy", &strategy)
        .await
        .expect("chosen");
    // This work fills all nodes for as long as the test takes.
    let ada = setup.fleet.client("job-converter", "user-ada");
    let submission = service(&["sleep", "1000"], NODES * NODE_CAPACITY);
    submit(&ada, "services", &submission).await;

    // The node is found within a few launches and blocked for a while, without an operator.
    let blocked = || async { setup.current_block().await.filter(|view| !view.item.canary) };
    let block = setup.until("the broken node to be blocked", blocked).await;
    assert!(block.item.automatic && block.left_ms.is_some(), "{block:?}");
    let evidence = setup.evidence(BROKEN_NODE).await;
    let lost = evidence.cost.attempts_lost;
    assert!((2..=16).contains(&lost), "a few launches: {evidence:#?}");
    assert_eq!(evidence.cost.quanta_withheld, u64::from(NODE_CAPACITY));
    assert!(evidence.scores[0].threshold == 2, "{evidence:#?}");

    // The node fails on trial as long as it is broken, and each block is twice as long.
    let three_blocks = || async { Some(setup.block_lengths_ms().await).filter(|it| it.len() >= 3) };
    let lengths = setup.until("two more blocks", three_blocks).await;
    let doubled: Vec<u64> = (0..lengths.len()).map(|it| BLOCK_MS << it).collect();
    assert_eq!(lengths, doubled);

    // Another node breaks. A brake explains why it is not blocked.
    setup.fleet.lose_node(SECOND_BROKEN_NODE);
    setup.fleet.start_agent(SECOND_BROKEN_NODE, &broken_agent());
    let withheld = || async { setup.evidence(SECOND_BROKEN_NODE).await.withheld };
    let reason = setup.until("a brake to hold", withheld).await;
    assert!(
        reason.contains("20 % or 1") && reason.contains("1 are"),
        "{reason}"
    );

    // Repaired nodes return after one trial.
    for node in [SECOND_BROKEN_NODE, BROKEN_NODE] {
        setup.fleet.kill(node);
        setup.fleet.start_agent(node, &Agent::default());
    }
    let trial_passed = || async {
        let last = setup.history().await.pop()?;
        (last.event == BlockEvent::TrialPassed).then_some(())
    };
    setup.until("the trial to be passed", trial_passed).await;
    assert!(setup.current_block().await.is_none());
    let is_full = || async {
        Some(setup.allocations_on_broken_node().await)
            .filter(|it| it.len() == NODE_CAPACITY as usize)
    };
    setup
        .until("all space of the node to be used", is_full)
        .await;
}
