//! Nodes on trial: one new allocation at a time (W6).

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_rm_scheduler_api::evidence::{FactEntry, What};
use hayward_service::{Clock, SystemClock};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Exit, ExitCause, Size};

use super::neighbours::{block, job, service};
use super::world::{Allocations, World, stays};

fn on<'a>(all: &'a Allocations, node: &'a str) -> impl Iterator<Item = &'a AllocationEntry> {
    all.values()
        .filter(move |it| stays(it) && it.node.as_str() == node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_trial_takes_one_at_a_time_until_the_trial_is_over() {
    let mut world = World::new(&[4, 6]).await;
    let mut item = block(BlockKind::Node, "n2", None);
    (item.action, item.canary) = (BlockAction::Mark, true);
    world.block(&item).await;
    let mut small = job("job_a", "ann");
    small.max_processes = 20;
    world.around.ask(&small);
    let mut large = service("svc_b.0", "ben");
    large.size = Size::memory(2 * GIB);
    world.around.ask(&large);
    let one = |all: &Allocations| on(all, "n1").count() >= 2 && on(all, "n2").count() == 1;
    let all = world.until("the other full and one on trial", one).await;
    world.settled().await;
    assert_eq!(on(&world.allocations().await, "n2").count(), 1);
    // A new term knows which of them is on trial.
    world.restart().await;
    world.settled().await;
    assert_eq!(on(&world.allocations().await, "n2").count(), 1);

    let first = on(&all, "n2").next().unwrap().clone();
    world.end(&first, Exit::of(ExitCause::Success, "done"));
    let worked = |fact: &FactEntry| fact.what == What::Worked;
    world
        .until_entry("failures", first.id.as_str(), "worked", worked)
        .await;
    let next = |all: &Allocations| on(all, "n2").any(|it| it.id != first.id);
    world.until("the next on trial", next).await;
    world.settled().await;
    assert_eq!(on(&world.allocations().await, "n2").count(), 1);
    world.around.blocks.remove("node/n2");
    world
        .until("the node is full", |all| on(all, "n2").count() >= 5)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_the_trial_stays_beside_it() {
    let world = World::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 2;
    world.around.ask(&demand);
    world.until("two", |all| all.len() == 2).await;
    let mut item = block(BlockKind::Node, "n1", None);
    item.action = BlockAction::Mark;
    world.block(&item).await;
    item.canary = true;
    world.around.block(&item);
    demand.max_processes = 9;
    world.around.ask(&demand);
    world.until("one more", |all| all.len() == 3).await;
    world.settled().await;
    assert_eq!(on(&world.allocations().await, "n1").count(), 3);
}

/// The block ends here by itself, and its trial begins with it, however late blocklist says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_judged_block_ends_in_its_trial_before_anybody_says_so() {
    let world = World::new(&[4, 6]).await;
    let end = SystemClock.now().plus_ms(1_500);
    let mut item = block(BlockKind::Node, "n2", Some(end));
    (item.action, item.automatic) = (BlockAction::Mark, true);
    item.sources = ["strategy:start-failures".to_owned()].into();
    world.block(&item).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 20;
    world.around.ask(&demand);
    let one = |all: &Allocations| on(all, "n2").count() >= 1;
    let all = world.until("one on the node", one).await;
    assert!(on(&all, "n2").all(|it| it.granted_at >= end));
    world.settled().await;
    assert_eq!(on(&world.allocations().await, "n2").count(), 1);
    (item.canary, item.removal_no) = (true, item.removal_no + 1);
    item.end = Some(end.plus_ms(600_000));
    world.around.block(&item);
    world.settled().await;
    assert_eq!(on(&world.allocations().await, "n2").count(), 1, "the same");
}
