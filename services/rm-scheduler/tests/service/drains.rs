//! Nodes that are emptied by and by: drains and graceful evacuations, and how far they are (W5).

use hayward_blocklist_api::{BlockAction, BlockKind, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::DrainOrder;
use hayward_rm_scheduler_api::evidence::{BlockerReason, ClearingEntry};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::{Clock, SystemClock};
use hayward_testkit::until;
use hayward_vocabulary::Timestamp;

use super::neighbours::{block, job, node, reservation, service};
use super::world::{Allocations, World, of, stays};

pub fn drain(world: &World, name: &str, quanta: u64, order: DrainOrder) {
    let mut entry = node(name, quanta);
    entry.drain = Some(order);
    world.around.nodes.put(name, &entry);
}

pub fn order(number: u64) -> DrainOrder {
    DrainOrder {
        number,
        since: Timestamp::from_unix_ms(1),
        deadline: None,
        paused: false,
        reason: "new disks".into(),
    }
}

/// A job of so many processes that lets one be moved at a time, all running.
async fn limited(world: &World, processes: u64) -> (DemandEntry, Allocations) {
    let mut demand = job("job_a", "ann");
    (demand.max_processes, demand.disruption_limit) = (processes, Some(1));
    world.around.ask(&demand);
    let wanted = usize::try_from(processes).unwrap();
    let all = world.until("all of it", |all| all.len() == wanted).await;
    for entry in all.values() {
        world.report(entry, ContainerState::Running);
    }
    let runs = |it: &AllocationEntry| it.running_since.is_some();
    let all = world.until("all run", |all| all.values().all(runs)).await;
    (demand, all)
}

fn leaving(all: &Allocations) -> Vec<AllocationEntry> {
    let leaving = all.values().filter(|it| it.vacate.is_some() && it.holds());
    leaving.cloned().collect()
}

async fn clearing(
    world: &World,
    key: &str,
    what: &str,
    good: impl Fn(&ClearingEntry) -> bool,
) -> ClearingEntry {
    world.until_entry("clearings", key, what, good).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_moves_one_at_a_time_until_the_node_is_empty() {
    let mut world = World::new(&[3]).await;
    let (_, before) = limited(&world, 3).await;
    world.around.node("n2", 4);
    world.settled().await;
    drain(&world, "n1", 3, order(7));
    let mut moved = 0;
    while moved < 3 {
        let one = world
            .until("one to leave", |all| leaving(all).len() == 1)
            .await;
        let leaves = leaving(&one).remove(0);
        let vacate = leaves.vacate.clone().unwrap();
        assert_eq!(
            (vacate.reason, vacate.purge),
            (VacateReason::Drained, false)
        );
        assert!(vacate.detail.contains("new disks"), "{}", vacate.detail);
        world.settled().await;
        assert_eq!(leaving(&world.allocations().await).len(), 1);
        if moved == 1 {
            // A new term takes no more apart either.
            world.restart().await;
            world.settled().await;
            assert_eq!(leaving(&world.allocations().await).len(), 1);
        }
        let told = clearing(&world, "drain/n1", "one goes", |it| {
            it.remaining == 3 - moved
        })
        .await;
        assert_eq!((told.number, told.total, told.moved), (7, 3, moved));
        let count = |why| told.blockers.iter().filter(|it| it.why == why).count() as u64;
        assert_eq!(count(BlockerReason::Stopping), 1, "{told:#?}");
        assert_eq!(count(BlockerReason::DisruptionLimit), 2 - moved);
        // It ends, and the next one waits until a successor runs.
        world.report(&leaves, ContainerState::Ended);
        let gone = |all: &Allocations| leaving(all).is_empty();
        world.until("it is gone", gone).await;
        world.settled().await;
        let all = world.allocations().await;
        assert!(leaving(&all).is_empty());
        let mut fresh = all.values().filter(|it| {
            stays(it) && it.running_since.is_none() && !before.contains_key(it.id.as_str())
        });
        let successor = fresh.next().cloned().unwrap();
        assert_eq!(successor.node.as_str(), "n2");
        world.report(&successor, ContainerState::Running);
        moved += 1;
    }
    let told = clearing(&world, "drain/n1", "is done", |it| it.moved == 3).await;
    assert_eq!((told.remaining, told.failed), (0, 0));
    assert!(told.blockers.is_empty());
    world.around.node("n1", 3);
    world.until_gone("clearings", "drain/n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_deadline_a_drain_takes_everything_but_reservations() {
    let world = World::new(&[3]).await;
    limited(&world, 2).await;
    let end = SystemClock.now().plus_ms(1_500);
    let with = |paused| DrainOrder {
        deadline: Some(end),
        paused,
        ..order(1)
    };
    drain(&world, "n1", 3, with(true));
    let told = clearing(&world, "drain/n1", "is paused", |it| it.blockers.len() == 2).await;
    assert!(
        told.blockers
            .iter()
            .all(|it| it.why == BlockerReason::Paused)
    );
    assert!(leaving(&world.allocations().await).is_empty());
    drain(&world, "n1", 3, with(false));
    world
        .until("one to leave", |all| leaving(all).len() == 1)
        .await;
    let all = world
        .until("all to leave", |all| leaving(all).len() == 2)
        .await;
    let last = all
        .values()
        .map(|it| it.vacate.as_ref().unwrap().since)
        .max();
    assert!(last.unwrap() >= end);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_stays_and_is_named() {
    let world = World::new(&[3]).await;
    world.around.ask(&reservation("rsv_a", "cy", 3));
    world.until_one("rsv_a", "is held", stays).await;
    drain(&world, "n1", 3, order(1));
    let told = clearing(&world, "drain/n1", "says who", |it| !it.blockers.is_empty()).await;
    let stays = &told.blockers[0];
    assert_eq!(
        (stays.why, stays.user.as_str()),
        (BlockerReason::Reservation, "cy")
    );
    assert_eq!((told.total, told.remaining), (1, 1));
    world.around.demand.remove("rsv_a");
    clearing(&world, "drain/n1", "is empty", |it| {
        it.remaining == 0 && it.moved == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_finds_no_room_is_not_taken_apart_further() {
    let world = World::new(&[3]).await;
    limited(&world, 3).await;
    drain(&world, "n1", 3, order(1));
    let all = world
        .until("one to leave", |all| leaving(all).len() == 1)
        .await;
    world.report(&leaving(&all)[0], ContainerState::Ended);
    let told = clearing(&world, "drain/n1", "has failed", |it| it.failed == 1).await;
    assert_eq!((told.moved, told.remaining), (0, 2));
    world.settled().await;
    assert!(leaving(&world.allocations().await).is_empty());
    // Nor is it once less is wanted: then nothing is lacking.
    world.around.node("n2", 1);
    let next = |it: &AllocationEntry| stays(it) && it.node.as_str() == "n2";
    let next = world.until_one("job_a", "has room", next).await;
    world.report(&next, ContainerState::Running);
    world
        .until("the next to leave", |all| leaving(all).len() == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_evacuation_keeps_to_limits_until_its_grace_is_over() {
    let world = World::new(&[4]).await;
    let (_, before) = limited(&world, 3).await;
    let mut free = service("svc_b.0", "ben");
    free.disruption_limit = None;
    world.around.ask(&free);
    world.running("svc_b.0").await;
    let mut item = block(BlockKind::Node, "n1", None);
    item.evacuation = EvacuationPolicy::Graceful { grace_ms: 1_500 };
    let since = SystemClock.now();
    world.around.block(&item);
    let two = |all: &Allocations| leaving(all).len() == 2;
    let all = world.until("one of each to leave", two).await;
    assert_eq!(
        leaving(&all)
            .iter()
            .filter(|it| before.contains_key(it.id.as_str()))
            .count(),
        1
    );
    let all = world
        .until("all to leave", |all| leaving(all).len() == 4)
        .await;
    let reason = |it: &AllocationEntry| it.vacate.as_ref().unwrap().reason;
    assert!(all.values().all(|it| reason(it) == VacateReason::Blocked));
    let last = all
        .values()
        .map(|it| it.vacate.as_ref().unwrap().since)
        .max();
    assert!(last.unwrap() >= since.plus_ms(1_500));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_30_an_item_that_is_removed_midway_moves_nothing_more() {
    let world = World::new(&[3]).await;
    limited(&world, 3).await;
    let mut item = block(BlockKind::Node, "n1", None);
    item.evacuation = EvacuationPolicy::Graceful { grace_ms: 600_000 };
    world.around.block(&item);
    world
        .until("one to leave", |all| leaving(all).len() == 1)
        .await;
    world.around.blocks.remove("node/n1");
    world.until_gone("clearings", "node/n1").await;
    world.let_go().await;
    let whole = |all: &Allocations| all.values().filter(|it| stays(it)).count() == 3;
    let all = world.until("three again", whole).await;
    assert_eq!(all.len(), 4, "what had begun to move did, and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_says_since_which_revision_it_is_in_force() {
    let mut world = World::new(&[3]).await;
    let before = world.revision();
    let mut item = block(BlockKind::Node, "n1", None);
    item.action = BlockAction::Mark;
    item.removal_no = 3;
    world.around.block(&item);
    let told = clearing(&world, "node/n1", "is in force", |_| true).await;
    assert!(told.revision > before && told.revision <= world.revision());
    assert_eq!((told.number, told.total, told.remaining), (3, 0, 0));
    world.restart().await;
    world.settled().await;
    let kept = world.entries::<ClearingEntry>("clearings").await;
    assert_eq!(kept["node/n1"], told);
    // Another block of the same key is another matter.
    item.removal_no = 4;
    world.around.block(&item);
    let next = clearing(&world, "node/n1", "is the next", |it| it.number == 4).await;
    assert!(next.revision > told.revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_6_a_mark_that_becomes_an_evacuation_runs_now_and_once() {
    let world = World::new(&[2, 2]).await;
    world.around.ask(&service("svc_a.0", "ann"));
    let first = world.running("svc_a.0").await;
    let key = format!("node/{}", first.node);
    let mut item = block(BlockKind::Node, first.node.as_str(), None);
    item.action = BlockAction::Mark;
    world.block(&item).await;
    world.settled().await;
    // Work on a marked node survives the mark (BL-4).
    assert!(world.allocations().await.values().all(stays));
    item.action = BlockAction::Evacuate;
    world.around.block(&item);
    let told = |it: &AllocationEntry| it.id == first.id && it.vacate.is_some();
    world.until_one("svc_a.0", "is told", told).await;
    let since = world.allocations().await[first.id.as_str()].vacate.clone();
    // The order is given once, whatever else changes in the item (BL-5).
    item.cause = "it smells worse".into();
    world.around.block(&item);
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(all[first.id.as_str()].vacate, since);
    assert_eq!(of(&all, "svc_a.0").len(), 2);
    world.report(&first, ContainerState::Ended);
    world.running("svc_a.0").await;
    let told = clearing(&world, &key, "is done", |it| it.moved == 1).await;
    assert_eq!((told.total, told.failed, told.remaining), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_28_a_block_for_one_job_moves_that_job_alone() {
    let world = World::new(&[4]).await;
    for (work, user) in [("svc_a.0", "ann"), ("svc_b.0", "ben")] {
        world.around.ask(&service(work, user));
        world.running(work).await;
    }
    let mut item = block(BlockKind::Node, "n1", None);
    item.job = Some("svc_a".parse().unwrap());
    world.around.block(&item);
    let told = |it: &AllocationEntry| it.vacate.is_some();
    let left = world.until_one("svc_a.0", "is told", told).await;
    assert_eq!(left.vacate.as_ref().unwrap().reason, VacateReason::Blocked);
    world.report(&left, ContainerState::Ended);
    let verdict = world.until_verdict("svc_a.0", WaitReason::AllBlocked).await;
    assert!(!verdict.refused);
    // Others stay, and others come.
    let mut other = job("job_c", "cy");
    other.max_processes = 2;
    world.around.ask(&other);
    world
        .until("others come", |all| of(all, "job_c").len() == 2)
        .await;
    assert!(of(&world.allocations().await, "svc_b.0").iter().all(stays));
    assert_eq!(of(&world.allocations().await, "svc_a.0").len(), 1);
    let told = clearing(&world, "node/n1@svc_a", "is told", |it| it.remaining == 0).await;
    assert_eq!((told.total, told.failed), (1, 1));
    world.around.blocks.remove("node/n1@svc_a");
    world.until_one("svc_a.0", "is back", stays).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_an_unblock_is_one_requirement_check_also_when_the_item_goes_after_its_end() {
    let world = World::new(&[2]).await;
    let end = SystemClock.now().plus_ms(1_200);
    let mut item = block(BlockKind::Node, "n1", Some(end));
    item.action = BlockAction::Mark;
    world.block(&item).await;
    world.settled().await;
    let round = world.shares().await.unwrap().round;
    until("the end", async || {
        let now = world.shares().await?.round;
        (SystemClock.now() > end && now > round).then_some(())
    })
    .await;
    world.around.blocks.remove("node/n1");
    // The probe is one round of its own.
    world.round().await;
    assert_eq!(world.shares().await.unwrap().round, round + 2);
}
