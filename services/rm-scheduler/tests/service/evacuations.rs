//! Processes of services leave a node that is emptied by and by only once their next place is
//! reserved (blocklist 10), and what happens where there is none.

use hayward_blocklist_api::{BlockKind, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::{DrainOrder, Health};
use hayward_rm_scheduler_api::evidence::{BlockerReason, ClearingEntry, FactEntry};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::{Clock, SystemClock};
use hayward_vocabulary::{Apart, Exit, ExitCause, Role};

use super::drains::{drain, order};
use super::neighbours::{block, node};
use super::requests::{process, put, request};
use super::world::{World, of, stays};

const WORK: &str = "svc_1.0";

/// A process that runs on `n1`, the only node.
async fn on_n1() -> (World, DemandEntry, AllocationEntry) {
    let world = World::new(&[4]).await;
    let demand = process(WORK, Role::Active);
    world.around.ask(&demand);
    let old = world.running(WORK).await;
    (world, demand, old)
}

async fn blocker(world: &World, key: &str, why: BlockerReason) -> ClearingEntry {
    let says = |it: &ClearingEntry| it.blockers.iter().any(|it| it.why == why);
    world.until_entry("clearings", key, "names it", says).await
}

async fn told(world: &World, old: &AllocationEntry) -> AllocationEntry {
    let told = |it: &AllocationEntry| it.id == old.id && it.vacate.is_some();
    world.until_one(old.work.as_str(), "is told", told).await
}

/// The one that takes over from another.
async fn successor(world: &World, old: &AllocationEntry) -> AllocationEntry {
    let follows = |it: &AllocationEntry| it.predecessor.as_ref() == Some(&old.id) && stays(it);
    let work = old.work.as_str();
    world.until_one(work, "has its next place", follows).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_process_is_told_when_its_next_place_is_reserved() {
    let (mut world, _, old) = on_n1().await;
    drain(&world, "n1", 4, order(1));
    let stuck = blocker(&world, "drain/n1", BlockerReason::NoPlace).await;
    assert_eq!((stuck.total, stuck.remaining), (1, 1));
    let detail = &stuck.blockers[0].detail;
    assert!(detail.contains("1 node could hold it"), "{detail}");
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert!(all.len() == 1 && stays(&all[0]), "untouched: {all:?}");
    // It lacks nothing, so nobody is told that it waits.
    assert_eq!(
        world.verdicts().await[WORK].reason,
        WaitReason::Satisfied,
        "it runs"
    );
    world.around.node("n2", 1);
    let new = successor(&world, &old).await;
    let left = told(&world, &old).await;
    let order = left.vacate.clone().unwrap();
    assert_eq!((order.reason, order.purge), (VacateReason::Drained, false));
    assert!(new.granted_at <= order.since && new.node.as_str() == "n2");
    assert!(new.request.is_none() && new.incarnation > old.incarnation);
    world.settled().await;
    world.restart().await;
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert_eq!(all.iter().filter(|it| it.holds()).count(), 2, "one, once");
    world.report(&old, ContainerState::Ended);
    let gone = |it: &ClearingEntry| it.remaining == 0;
    world
        .until_entry("clearings", "drain/n1", "is empty", gone)
        .await;
    world.report(&new, ContainerState::Running);
    let moved = |it: &ClearingEntry| it.moved == 1 && it.failed == 0;
    world
        .until_entry("clearings", "drain/n1", "is done", moved)
        .await;
    let all = of(&world.allocations().await, WORK);
    assert_eq!(all.iter().filter(|it| it.holds()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_its_time_is_over_it_goes_without_and_that_is_said() {
    for blocked in [true, false] {
        let (world, _, old) = on_n1().await;
        let end = SystemClock.now().plus_ms(2_000);
        let (key, reason) = if blocked {
            let mut item = block(BlockKind::Node, "n1", None);
            item.evacuation = EvacuationPolicy::Graceful { grace_ms: 2_000 };
            world.around.block(&item);
            ("node/n1", VacateReason::Blocked)
        } else {
            let until = DrainOrder {
                deadline: Some(end),
                ..order(1)
            };
            drain(&world, "n1", 4, until);
            ("drain/n1", VacateReason::Drained)
        };
        blocker(&world, key, BlockerReason::NoPlace).await;
        let order = told(&world, &old).await.vacate.unwrap();
        assert!(order.since >= end && order.reason == reason, "{order:?}");
        assert!(order.detail.contains("no next place"), "{order:?}");
        // As with an immediate one, the everyday restart follows.
        world.report(&old, ContainerState::Ended);
        let demand = DemandEntry {
            settled: [old.id.clone()].into(),
            ..process(WORK, Role::Active)
        };
        world.around.ask(&demand);
        world.until_verdict(WORK, WaitReason::AllBlocked).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_drain_leaves_everything_where_it_was() {
    let (world, _, old) = on_n1().await;
    drain(&world, "n1", 4, order(1));
    blocker(&world, "drain/n1", BlockerReason::NoPlace).await;
    world.around.node("n1", 4);
    world.until_gone("clearings", "drain/n1").await;
    world.around.node("n2", 4);
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    assert!(all.len() == 1 && stays(&all[0]) && all[0].id == old.id);
    assert_eq!(
        world.verdicts().await[WORK].reason,
        WaitReason::Satisfied,
        "nor is anything said of it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_finds_no_place_another_of_its_service_may() {
    let world = World::new(&[4]).await;
    let mut bound = process(WORK, Role::Active);
    (bound.disruption_limit, bound.machines) = (Some(1), vec!["n1".parse().unwrap()]);
    let mut free = process("svc_1.1", Role::Active);
    free.disruption_limit = Some(1);
    for demand in [&bound, &free] {
        world.around.ask(demand);
        world.running(demand.work.as_str()).await;
    }
    let old = of(&world.allocations().await, "svc_1.1").remove(0);
    world.around.node("n2", 4);
    world.settled().await;
    drain(&world, "n1", 4, order(1));
    successor(&world, &old).await;
    told(&world, &old).await;
    // One of them moves, and that is what they allow.
    let limited = blocker(&world, "drain/n1", BlockerReason::DisruptionLimit).await;
    assert_eq!(limited.remaining, 2);
    assert!(of(&world.allocations().await, WORK).iter().all(stays));
}

fn with_standby(world: &World) -> DemandEntry {
    let apart = Apart {
        group: WORK.parse().unwrap(),
        by_label: None,
    };
    let mut active = process(WORK, Role::Active);
    active.apart = Some(apart.clone());
    active.machines = vec!["n1".parse().unwrap(), "n3".parse().unwrap()];
    world.around.ask(&active);
    let role = Role::Standby {
        of: WORK.parse().unwrap(),
        replica: 0,
    };
    let mut standby = process("svc_1.0-0", role);
    (standby.apart, standby.machines) = (Some(apart), vec!["n2".parse().unwrap()]);
    world.around.ask(&standby);
    active
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_29_an_active_leaves_at_once_where_its_standby_takes_over() {
    let world = World::new(&[4, 4]).await;
    with_standby(&world);
    let old = world.running(WORK).await;
    world.running("svc_1.0-0").await;
    world.around.node("n3", 4);
    let mut item = block(BlockKind::Node, "n1", None);
    item.evacuation = EvacuationPolicy::Graceful { grace_ms: 600_000 };
    world.around.block(&item);
    told(&world, &old).await;
    let all = of(&world.allocations().await, WORK);
    assert!(all.iter().all(|it| it.predecessor.is_none()), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_whose_standby_is_not_up_gets_its_next_place_first() {
    let world = World::new(&[4, 0]).await;
    let mut active = with_standby(&world);
    let old = world.running(WORK).await;
    // As job-converter pins an active with standbys to where it runs.
    active.host = Some(old.node.clone());
    world.around.ask(&active);
    world.around.node("n3", 4);
    world.settled().await;
    drain(&world, "n1", 4, order(1));
    let new = successor(&world, &old).await;
    assert_eq!(new.node.as_str(), "n3");
    // Not a reason that its owner answers with a failover.
    let order = told(&world, &old).await.vacate.unwrap();
    assert_eq!(order.reason, VacateReason::Moved);
    assert!(order.detail.contains("n1 is drained"), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_its_owner_and_a_drain_give_it_one_next_place() {
    let (world, _, old) = on_n1().await;
    // Moved by order: the drain keeps its hands off.
    put(&world, &request(1, Some(&old), Some("n9")));
    world.settled().await;
    drain(&world, "n1", 4, order(1));
    blocker(&world, "drain/n1", BlockerReason::Moving).await;
    world.around.node("n2", 4);
    world.settled().await;
    assert!(of(&world.allocations().await, WORK).iter().all(stays));
    // The order gives up, and the drain goes on; another order comes too late.
    world.around.requests.remove("req_1");
    let new = successor(&world, &old).await;
    assert!(new.request.is_none());
    put(&world, &request(2, Some(&old), None));
    world.settled().await;
    world.report(&old, ContainerState::Ended);
    world
        .until("its end to be heard of", |all| {
            all.get(old.id.as_str()).is_none_or(|it| !it.holds())
        })
        .await;
    world.settled().await;
    let all = of(&world.allocations().await, WORK);
    let held: Vec<_> = all.iter().filter(|it| it.holds()).collect();
    assert!(held.len() == 1 && held[0].id == new.id, "{all:#?}");
    assert!(stays(held[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_lost_before_it_was_taken_is_found_again() {
    let (world, _, old) = on_n1().await;
    world.around.node("n2", 4);
    world.settled().await;
    drain(&world, "n1", 4, order(1));
    let first = successor(&world, &old).await;
    told(&world, &old).await;
    let mut lost = node("n2", 4);
    lost.health = Health::Lost;
    world.around.nodes.put("n2", &lost);
    world.around.node("n3", 4);
    let again = |it: &AllocationEntry| {
        let follows = it.predecessor.as_ref() == Some(&old.id);
        follows && stays(it) && it.id != first.id
    };
    let next = world.until_one(WORK, "has another", again).await;
    assert_eq!(next.node.as_str(), "n3");
}

/// An intended end is a failure nowhere: what is told of machines (here), retries and pauses
/// (job-converter: `ending`), pools (`section_22`).
#[tokio::test(flavor = "multi_thread")]
async fn however_an_evacuated_process_ends_no_machine_is_blamed() {
    use ExitCause::{
        Intended, LaunchFailed, LaunchUnknown, Node, Success, Unknown, UserError, UserLimit,
    };
    let causes = [
        Success,
        UserError,
        UserLimit,
        LaunchFailed,
        Node,
        Intended,
        LaunchUnknown,
        Unknown,
    ];
    let world = World::new(&[8]).await;
    let work = |at: usize| format!("svc_1.{at}");
    for at in 0..causes.len() {
        world.around.ask(&process(&work(at), Role::Active));
    }
    let mut old = Vec::new();
    for at in 0..causes.len() {
        old.push(world.running(&work(at)).await);
    }
    world.around.node("n2", 8);
    world.settled().await;
    drain(&world, "n1", 8, order(1));
    for (old, cause) in old.iter().zip(causes) {
        successor(&world, old).await;
        told(&world, old).await;
        let exit = Exit {
            cause_code: Some("disk_full".to_owned()),
            ..Exit::of(cause, "a test says so")
        };
        world.end(old, exit);
    }
    let gone = |it: &ClearingEntry| it.remaining == 0;
    world
        .until_entry("clearings", "drain/n1", "is empty", gone)
        .await;
    world.settled().await;
    let facts = world.entries::<FactEntry>("failures").await;
    assert!(facts.is_empty(), "{facts:?}");
    let all = world.allocations().await;
    for at in 0..causes.len() {
        let held = of(&all, &work(at));
        assert_eq!(held.iter().filter(|it| it.holds()).count(), 1);
    }
}
