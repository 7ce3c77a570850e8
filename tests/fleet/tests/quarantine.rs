//! W6, F34: a machine that heartbeats well and starts nothing leaves by itself, and comes back when
//! it works again.

use std::time::Duration;

use hayward_blocklist_api::{BlockChange, BlockEvent, BlockHistory, BlockOverview, BlockView};
use hayward_job_converter_api::WorkState;
use hayward_service::Client;
use hayward_testkit::until_within;
use hayward_tests_fleet::{Agent, Witness, World, all_right, ends, job, outcomes, submit};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(2);
const GREY: &str = "node-3";
const BLOCK_MS: u64 = 2_000;
const NODES: u32 = 5;

/// What is said of a node now: its block or its trial. No other node is ever named.
async fn said(blocks: &Client) -> Option<BlockView> {
    let overview: BlockOverview = blocks.get("/v1/blocklist").await.ok()?;
    let strangers = overview
        .nodes
        .iter()
        .filter(|it| it.item.identifier != GREY);
    assert_eq!(strangers.count(), 0, "{overview:?}");
    overview.nodes.into_iter().next()
}

async fn history(blocks: &Client) -> Vec<BlockChange> {
    let path = "/v1/blocklist/history?limit=1000";
    let history: BlockHistory = blocks.get(path).await.expect("a history");
    history.changes
}

/// Milliseconds that the blocks of the node lasted, the first one first.
fn lengths(changes: &[BlockChange]) -> Vec<u64> {
    let added = |change: &&BlockChange| change.event == BlockEvent::Added && !change.item.canary;
    let blocks = changes.iter().rev().filter(added);
    blocks
        .filter_map(|it| Some(it.item.end?.ms_since(it.item.start)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn w_6_a_grey_node_is_found_blocked_tried_and_taken_back() {
    let mut world = World::start().await;
    let grey = Agent {
        helper: Some("/nonexistent"),
        ..Agent::default()
    };
    for number in 1..=NODES {
        let node = format!("node-{number}");
        let agent = if node == GREY {
            &grey
        } else {
            &Agent::default()
        };
        world.start_agent(&node, agent);
    }
    world.nodes_take_work(NODES as usize).await;
    let blocks = world.client("blocklist", "operator");
    let strategy = json!({
        "name": "start-failures", "parameters": { "n": 2, "duration_ms": BLOCK_MS },
    });
    let _: Value = blocks
        .put("/v1/blocklist/strategy", &strategy)
        .await
        .expect("chosen");

    // Work for all twenty places, for as long as the story takes.
    let ada = world.client("job-converter", "user-ada");
    let witness = Witness::new(world.dir.path());
    let mut work = job(&[], 4_000);
    work.command = witness.command("0.1");
    work.max_processes = Some(20);
    let id = submit(&ada, "jobs", &work).await;

    // Found by evidence, and blocked for a while by nobody's hand.
    let item = until_within("the grey node to be blocked", LIMIT, async || {
        said(&blocks).await.filter(|it| !it.item.canary)
    })
    .await;
    assert!(item.item.automatic && item.left_ms.is_some(), "{item:?}");
    let path = format!("/v1/blocklist/nodes/{GREY}/evidence");
    let evidence: Value = blocks.get(&path).await.expect("evidence");
    let lost = evidence["cost"]["attempts_lost"].as_u64().unwrap_or(0);
    assert!((2..=12).contains(&lost), "a few launches: {evidence:#}");

    // Its trial fails as long as it is broken, and each block is twice as long.
    until_within("two more blocks", LIMIT, async || {
        let lengths = lengths(&history(&blocks).await);
        (lengths.len() >= 3).then_some(())
    })
    .await;
    let changes = history(&blocks).await;
    for pair in lengths(&changes).windows(2) {
        assert_eq!(pair[1], pair[0] * 2, "{changes:#?}");
    }

    // Repaired, it is taken back after one trial.
    world.kill(GREY);
    world.start_agent(GREY, &Agent::default());
    until_within("nothing to be said of it", LIMIT, async || {
        said(&blocks).await.is_none().then_some(())
    })
    .await;
    let view = ends(&ada, &id, LIMIT).await;
    assert_eq!(view.state, WorkState::Completed, "{view:?}");
    all_right(&outcomes(&ada, &id).await, 4_000);
}
