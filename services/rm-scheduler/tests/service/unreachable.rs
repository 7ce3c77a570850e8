//! Work whose node cannot be reached: its owner said what becomes of it (W7).

use std::collections::BTreeSet;

use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason, VerdictEntry};
use hayward_service::{Clock, SystemClock};
use hayward_vocabulary::WhenUnreachable;

use super::neighbours::{block, job, node, service};
use super::world::{Allocations, World, of, stays};

fn asks(work: &str, when: WhenUnreachable) -> DemandEntry {
    DemandEntry {
        when_unreachable: when,
        ..service(work, "ann")
    }
}

fn lose(world: &World, name: &str) {
    let mut lost = node(name, 2);
    lost.health = Health::Lost;
    world.around.nodes.put(name, &lost);
}

fn unreachable(entry: &AllocationEntry) -> bool {
    entry.state == AllocationState::Unreachable && entry.vacate.is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_waits_for_its_node_goes_on_when_it_is_back() {
    let mut world = World::new(&[2, 2]).await;
    world.around.ask(&asks("svc_a.0", WhenUnreachable::Wait));
    let first = world.running("svc_a.0").await;
    let node = first.node.as_str();
    // Beside it stands one that does not wait.
    let mut beside = service("svc_b.0", "ben");
    beside.machines = vec![first.node.clone()];
    world.around.ask(&beside);
    let replaced = world.running("svc_b.0").await;
    beside.machines = Vec::new();
    world.around.ask(&beside);
    lose(&world, node);
    world
        .until_one("svc_a.0", "is unreachable", unreachable)
        .await;
    let told = world
        .until_told("svc_a.0", "says what it waits for", |it: &VerdictEntry| {
            it.detail.contains("is waited for")
        })
        .await;
    assert!(told.detail.contains(node), "{}", told.detail);
    let ended = |it: &AllocationEntry| it.id == replaced.id && !it.holds();
    let ended = world.until_one("svc_b.0", "is given up", ended).await;
    let vacate = ended.vacate.unwrap();
    assert_eq!(
        (vacate.reason, vacate.purge),
        (VacateReason::NodeLost, true)
    );
    world.until_one("svc_b.0", "goes on", stays).await;

    // Nothing takes it off while its node cannot hear it, and a restart changes nothing.
    world
        .around
        .block(&block(hayward_blocklist_api::BlockKind::Node, node, None));
    world.restart().await;
    world.settled().await;
    let all = world.allocations().await;
    let mine = of(&all, "svc_a.0");
    assert!(mine.len() == 1 && unreachable(&mine[0]), "{mine:#?}");
    world.around.blocks.remove(&format!("node/{node}"));

    world.around.node(node, 2);
    let runs = |it: &AllocationEntry| it.state == AllocationState::Running;
    let back = world.until_one("svc_a.0", "runs", runs).await;
    assert_eq!(back.id, first.id);
    world
        .until_told("svc_a.0", "waits no more", |it: &VerdictEntry| {
            !it.detail.contains("is waited for")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_replaced_after_the_time_it_named_and_not_before() {
    let world = World::new(&[2, 2]).await;
    let when = WhenUnreachable::ReplaceAfter { ms: 1_200 };
    world.around.ask(&asks("svc_a.0", when));
    let first = world.running("svc_a.0").await;
    let since = SystemClock.now();
    lose(&world, first.node.as_str());
    world
        .until_one("svc_a.0", "is unreachable", unreachable)
        .await;
    world
        .until_told("svc_a.0", "says when", |it: &VerdictEntry| {
            it.detail.contains("is replaced at 2")
        })
        .await;
    let next = |it: &AllocationEntry| stays(it) && it.id != first.id;
    let next = world.until_one("svc_a.0", "is replaced", next).await;
    assert!(next.granted_at >= since.plus_ms(1_200));
    let all = world.allocations().await;
    let vacate = all[first.id.as_str()].vacate.as_ref().unwrap();
    assert_eq!(
        (vacate.reason, vacate.purge),
        (VacateReason::NodeLost, true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_back_in_time_keeps_its_work() {
    let world = World::new(&[2, 2]).await;
    let when = WhenUnreachable::ReplaceAfter { ms: 3_600_000 };
    let mut demand = job("job_a", "ann");
    (demand.max_processes, demand.when_unreachable) = (1, when);
    world.around.ask(&demand);
    let first = world.running("job_a").await;
    lose(&world, first.node.as_str());
    world
        .until_one("job_a", "is unreachable", unreachable)
        .await;
    // It ends while its node is away: an end is an end.
    world.around.node(first.node.as_str(), 2);
    let runs = |it: &AllocationEntry| it.state == AllocationState::Running;
    world.until_one("job_a", "runs", runs).await;
    world.settled().await;
    let all = world.allocations().await;
    let ids: BTreeSet<_> = of(&all, "job_a").into_iter().map(|it| it.id).collect();
    assert_eq!(ids, [first.id].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_says_so_and_is_replaced_when_its_node_is_given_up() {
    let mut world = World::new(&[2, 2]).await;
    world
        .around
        .ask(&asks("svc_a.0", WhenUnreachable::Exclusive));
    let first = world.running("svc_a.0").await;
    assert!(first.exclusive);
    world.restart().await;
    let mut suspect = node(first.node.as_str(), 2);
    suspect.health = Health::Suspect;
    world.around.nodes.put(first.node.as_str(), &suspect);
    world.settled().await;
    let all = world.allocations().await;
    assert!(all.len() == 1 && all.values().all(|it| it.exclusive && stays(it)));
    lose(&world, first.node.as_str());
    let next = |it: &AllocationEntry| stays(it) && it.id != first.id;
    assert!(world.until_one("svc_a.0", "goes on", next).await.exclusive);
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_work_on_a_lost_node_is_not_waited_for() {
    let world = World::new(&[2]).await;
    world.around.ask(&asks("svc_a.0", WhenUnreachable::Wait));
    let first = world.running("svc_a.0").await;
    lose(&world, "n1");
    world
        .until_one("svc_a.0", "is unreachable", unreachable)
        .await;
    world.report(&first, ContainerState::Launching);
    world.settled().await;
    assert!(unreachable(&world.allocations().await[first.id.as_str()]));
    world.around.demand.remove("svc_a.0");
    world.until("nothing left", Allocations::is_empty).await;
}
