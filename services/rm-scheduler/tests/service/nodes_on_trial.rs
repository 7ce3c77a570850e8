//! Tests of nodes on trial. A block no longer covers such a node, but the node gets only one new
//! allocation at a time (W6).

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_rm_scheduler_api::node_publications::{FactEntry, FactKind};
use hayward_service::{Clock, SystemClock};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Exit, ExitCause, Size};

use super::fixture::{Allocations, Fixture, is_staying};
use super::neighbours::{block, job, service};

/// Returns the allocations on this node that are not vacated.
fn on_node<'a>(all: &'a Allocations, node: &'a str) -> impl Iterator<Item = &'a AllocationEntry> {
    all.values()
        .filter(move |it| is_staying(it) && it.node.as_str() == node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_trial_gets_one_allocation_at_a_time_until_the_trial_ends() {
    let mut fixture = Fixture::new(&[4, 6]).await;
    let mut item = block(BlockKind::Node, "n2", None);
    (item.action, item.canary) = (BlockAction::Mark, true);
    fixture.block(&item).await;
    let mut small = job("job_a", "ann");
    small.max_processes = 20;
    fixture.neighbours.submit(&small);
    let mut large = service("svc_b.0", "ben");
    large.size = Size::memory(2 * GIB);
    fixture.neighbours.submit(&large);
    let one_on_trial =
        |all: &Allocations| on_node(all, "n1").count() >= 2 && on_node(all, "n2").count() == 1;
    let all = fixture
        .until("one allocation on n2 and at least two on n1", one_on_trial)
        .await;
    fixture.settle().await;
    assert_eq!(on_node(&fixture.allocations().await, "n2").count(), 1);
    // After a restart the scheduler still knows which allocation is on trial.
    fixture.restart().await;
    fixture.settle().await;
    assert_eq!(on_node(&fixture.allocations().await, "n2").count(), 1);

    let first = on_node(&all, "n2").next().unwrap().clone();
    fixture.end(&first, Exit::of(ExitCause::Success, "done"));
    let worked = |fact: &FactEntry| fact.what == FactKind::Worked;
    fixture
        .until_entry("failures", first.id.as_str(), "worked", worked)
        .await;
    let next = |all: &Allocations| on_node(all, "n2").any(|it| it.id != first.id);
    fixture.until("the next allocation on trial", next).await;
    fixture.settle().await;
    assert_eq!(on_node(&fixture.allocations().await, "n2").count(), 1);
    fixture.neighbours.blocks.remove("node/n2");
    // The service of two quanta may be one of the allocations on the six quanta.
    fixture
        .until("the node is full", |all| on_node(all, "n2").count() >= 5)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn allocations_from_before_the_trial_stay() {
    let fixture = Fixture::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 2;
    fixture.neighbours.submit(&demand);
    fixture.until("two processes", |all| all.len() == 2).await;
    let mut item = block(BlockKind::Node, "n1", None);
    item.action = BlockAction::Mark;
    fixture.block(&item).await;
    item.canary = true;
    fixture.neighbours.block(&item);
    demand.max_processes = 9;
    fixture.neighbours.submit(&demand);
    fixture.until("three processes", |all| all.len() == 3).await;
    fixture.settle().await;
    assert_eq!(on_node(&fixture.allocations().await, "n1").count(), 3);
}

/// At the end of the block rm-scheduler itself begins the trial, before blocklist reports it.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_a_strategy_ends_in_a_trial_before_blocklist_reports_it() {
    let fixture = Fixture::new(&[4, 6]).await;
    let end = SystemClock.now().plus_ms(1_500);
    let mut item = block(BlockKind::Node, "n2", Some(end));
    (item.action, item.automatic) = (BlockAction::Mark, true);
    item.sources = ["strategy:start-failures".to_owned()].into();
    fixture.block(&item).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 20;
    fixture.neighbours.submit(&demand);
    let one = |all: &Allocations| on_node(all, "n2").count() >= 1;
    let all = fixture.until("one on the node", one).await;
    assert!(on_node(&all, "n2").all(|it| it.granted_at >= end));
    fixture.settle().await;
    assert_eq!(on_node(&fixture.allocations().await, "n2").count(), 1);
    (item.canary, item.removal_no) = (true, item.removal_no + 1);
    item.end = Some(end.plus_ms(600_000));
    fixture.neighbours.block(&item);
    fixture.settle().await;
    assert_eq!(
        on_node(&fixture.allocations().await, "n2").count(),
        1,
        "the same allocation is on trial"
    );
}
