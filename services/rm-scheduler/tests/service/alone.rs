//! Exclusive work (I4): by whatever road a process leaves, its successor names what it waits for.

use hayward_blocklist_api::{BlockKind, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::DrainOrder;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::{Role, Timestamp, WhenUnreachable};

use super::drains::{drain, order};
use super::neighbours::block;
use super::requests::process;
use super::world::{World, stays};

const WORK: &str = "svc_1.0";

fn exclusive() -> DemandEntry {
    DemandEntry {
        when_unreachable: WhenUnreachable::Exclusive,
        ..process(WORK, Role::Active)
    }
}

/// Sends the process off.
type Road = fn(&World, &AllocationEntry);

fn worker_evacuated(world: &World, of: &AllocationEntry) {
    let item = block(BlockKind::Worker, of.id.as_str(), None);
    world.around.block(&item);
}

const ROADS: [(&str, Road); 6] = [
    ("its node is evacuated at once", |world, old| {
        let item = block(BlockKind::Node, old.node.as_str(), None);
        world.around.block(&item);
    }),
    ("its worker is evacuated at once", worker_evacuated),
    ("its node is blocked for it alone", |world, old| {
        let mut item = block(BlockKind::Node, old.node.as_str(), None);
        item.job = Some("svc_1".parse().unwrap());
        world.around.block(&item);
    }),
    ("its node is evacuated by and by", |world, old| {
        let mut item = block(BlockKind::Node, old.node.as_str(), None);
        item.evacuation = EvacuationPolicy::Graceful { grace_ms: 600_000 };
        world.around.block(&item);
    }),
    ("its node is drained", |world, old| {
        drain(world, old.node.as_str(), 4, order(1));
    }),
    ("the time of a drain is over", |world, old| {
        let over = DrainOrder {
            deadline: Some(Timestamp::from_unix_ms(1)),
            ..order(1)
        };
        drain(world, old.node.as_str(), 4, over);
    }),
];

/// Runs on `n1`, and there is room on another.
async fn on_n1() -> (World, AllocationEntry) {
    let world = World::new(&[4]).await;
    world.around.ask(&exclusive());
    let old = world.running(WORK).await;
    world.around.node("n2", 4);
    world.around.node("n3", 4);
    world.settled().await;
    (world, old)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_of_exclusive_work_names_what_has_not_ended() {
    for (road, send_off) in ROADS {
        let (world, old) = on_n1().await;
        send_off(&world, &old);
        let next = |it: &AllocationEntry| stays(it) && it.id != old.id;
        let new = world.until_one(WORK, road, next).await;
        assert_eq!(new.predecessor.as_ref(), Some(&old.id), "{road}");
        // And what takes over from that one waits for the same end, which is not proven yet.
        worker_evacuated(&world, &new);
        let third = |it: &AllocationEntry| stays(it) && it.incarnation > new.incarnation;
        let third = world.until_one(WORK, road, third).await;
        assert_eq!(third.predecessor.as_ref(), Some(&old.id), "{road}");
        world.report(&new, ContainerState::Ended);
        world.report(&old, ContainerState::Ended);
        world.settled().await;
        let all = world.allocations().await;
        let holding: Vec<_> = all.values().filter(|it| it.holds()).collect();
        assert!(holding.len() == 1 && holding[0].id == third.id, "{road}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_that_is_asked_for_again_before_it_has_ended_waits_for_that() {
    let (world, old) = on_n1().await;
    let nothing = DemandEntry {
        max_processes: 0,
        ..exclusive()
    };
    world.around.ask(&nothing);
    let told = |it: &AllocationEntry| it.id == old.id && it.vacate.is_some();
    world.until_one(WORK, "is told to leave", told).await;
    world.around.ask(&exclusive());
    let next = |it: &AllocationEntry| stays(it) && it.id != old.id;
    let new = world.until_one(WORK, "is there again", next).await;
    assert_eq!(new.predecessor, Some(old.id));
}
