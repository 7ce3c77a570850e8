//! Tests of drains and graceful evacuations of nodes. Each has a *clearing*, an entry of the
//! publication `clearings` with its progress: how many allocations were moved, failed or remain,
//! and what blocks the remaining ones (W5).

use hayward_blocklist_api::{BlockKind, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::DrainOrder;
use hayward_rm_scheduler_api::node_publications::{BlockerReason, ClearingEntry};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_service::{Clock, SystemClock};
use hayward_vocabulary::Timestamp;

use super::fixture::{Allocations, Fixture, is_staying};
use super::neighbours::{block, job, node, reservation, service};

/// Reports a node with this drain order.
pub fn drain(fixture: &Fixture, name: &str, quanta: u64, order: DrainOrder) {
    let mut entry = node(name, quanta);
    entry.drain = Some(order);
    fixture.neighbours.nodes.put(name, &entry);
}

/// Returns a drain order without a deadline.
pub fn drain_order(number: u64) -> DrainOrder {
    DrainOrder {
        number,
        since: Timestamp::from_unix_ms(1),
        deadline: None,
        paused: false,
        reason: "new disks".into(),
    }
}

/// Starts `job_a` with this number of running processes. Its disruption limit allows one move at a
/// time.
async fn start_limited_job(fixture: &Fixture, processes: u64) -> (DemandEntry, Allocations) {
    let mut demand = job("job_a", "ann");
    (demand.max_processes, demand.disruption_limit) = (processes, Some(1));
    fixture.neighbours.submit(&demand);
    let wanted = usize::try_from(processes).unwrap();
    let all = fixture.until("all of it", |all| all.len() == wanted).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let runs = |it: &AllocationEntry| it.running_since.is_some();
    let all = fixture.until("all run", |all| all.values().all(runs)).await;
    (demand, all)
}

fn leaving_allocations(all: &Allocations) -> Vec<AllocationEntry> {
    let leaving = all.values().filter(|it| it.vacate.is_some() && it.holds());
    leaving.cloned().collect()
}

/// Waits until the clearing with this key satisfies the condition.
pub async fn until_clearing(
    fixture: &Fixture,
    key: &str,
    what: &str,
    condition: impl Fn(&ClearingEntry) -> bool,
) -> ClearingEntry {
    fixture.until_entry("clearings", key, what, condition).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_moves_one_at_a_time_until_the_node_is_empty() {
    let mut fixture = Fixture::new(&[3]).await;
    let (_, before) = start_limited_job(&fixture, 3).await;
    fixture.neighbours.node("n2", 4);
    fixture.settle().await;
    drain(&fixture, "n1", 3, drain_order(7));
    let mut moved = 0;
    while moved < 3 {
        let one = fixture
            .until("one to leave", |all| leaving_allocations(all).len() == 1)
            .await;
        let leaves = leaving_allocations(&one).remove(0);
        let vacate = leaves.vacate.clone().unwrap();
        assert_eq!(
            (vacate.reason, vacate.purge),
            (VacateReason::Drained, false)
        );
        assert!(vacate.detail.contains("new disks"), "{}", vacate.detail);
        fixture.settle().await;
        assert_eq!(leaving_allocations(&fixture.allocations().await).len(), 1);
        if moved == 1 {
            // After a restart still only one process leaves at a time.
            fixture.restart().await;
            fixture.settle().await;
            assert_eq!(leaving_allocations(&fixture.allocations().await).len(), 1);
        }
        let progress = until_clearing(&fixture, "drain/n1", "one goes", |it| {
            it.remaining == 3 - moved
        })
        .await;
        assert_eq!(
            (progress.number, progress.total, progress.moved),
            (7, 3, moved)
        );
        let count = |why| progress.blockers.iter().filter(|it| it.why == why).count() as u64;
        assert_eq!(count(BlockerReason::Stopping), 1, "{progress:#?}");
        assert_eq!(count(BlockerReason::DisruptionLimit), 2 - moved);
        // The process ends. The next process stays until the successor of this one runs.
        fixture.report(&leaves, ContainerState::Ended);
        let gone = |all: &Allocations| leaving_allocations(all).is_empty();
        fixture.until("the end of the process", gone).await;
        fixture.settle().await;
        let all = fixture.allocations().await;
        assert!(leaving_allocations(&all).is_empty());
        let mut successors = all.values().filter(|it| {
            is_staying(it) && it.running_since.is_none() && !before.contains_key(it.id.as_str())
        });
        let successor = successors.next().cloned().unwrap();
        assert_eq!(successor.node.as_str(), "n2");
        fixture.report(&successor, ContainerState::Running);
        moved += 1;
    }
    let progress = until_clearing(&fixture, "drain/n1", "is done", |it| it.moved == 3).await;
    assert_eq!((progress.remaining, progress.failed), (0, 0));
    assert!(progress.blockers.is_empty());
    fixture.neighbours.node("n1", 3);
    fixture.until_withdrawn("clearings", "drain/n1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_deadline_a_drain_takes_everything_but_reservations() {
    let fixture = Fixture::new(&[3]).await;
    start_limited_job(&fixture, 2).await;
    let end = SystemClock.now().plus_ms(1_500);
    let order_until_end = |paused| DrainOrder {
        deadline: Some(end),
        paused,
        ..drain_order(1)
    };
    drain(&fixture, "n1", 3, order_until_end(true));
    let progress = until_clearing(&fixture, "drain/n1", "is paused", |it| {
        it.blockers.len() == 2
    })
    .await;
    assert!(
        progress
            .blockers
            .iter()
            .all(|it| it.why == BlockerReason::Paused)
    );
    assert!(leaving_allocations(&fixture.allocations().await).is_empty());
    drain(&fixture, "n1", 3, order_until_end(false));
    fixture
        .until("one to leave", |all| leaving_allocations(all).len() == 1)
        .await;
    let all = fixture
        .until("all to leave", |all| leaving_allocations(all).len() == 2)
        .await;
    let last = all
        .values()
        .map(|it| it.vacate.as_ref().unwrap().since)
        .max();
    assert!(last.unwrap() >= end);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_stays_and_is_named() {
    let fixture = Fixture::new(&[3]).await;
    fixture.neighbours.submit(&reservation("rsv_a", "cy", 3));
    fixture.until_one("rsv_a", "is held", is_staying).await;
    drain(&fixture, "n1", 3, drain_order(1));
    let progress = until_clearing(&fixture, "drain/n1", "names a blocker", |it| {
        !it.blockers.is_empty()
    })
    .await;
    let blocker = &progress.blockers[0];
    assert_eq!(
        (blocker.why, blocker.user.as_str()),
        (BlockerReason::Reservation, "cy")
    );
    assert_eq!((progress.total, progress.remaining), (1, 1));
    fixture.neighbours.demand.remove("rsv_a");
    until_clearing(&fixture, "drain/n1", "is empty", |it| {
        it.remaining == 0 && it.moved == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_without_space_elsewhere_loses_no_further_process() {
    let fixture = Fixture::new(&[3]).await;
    start_limited_job(&fixture, 3).await;
    drain(&fixture, "n1", 3, drain_order(1));
    let all = fixture
        .until("one to leave", |all| leaving_allocations(all).len() == 1)
        .await;
    fixture.report(&leaving_allocations(&all)[0], ContainerState::Ended);
    let progress = until_clearing(&fixture, "drain/n1", "has failed", |it| it.failed == 1).await;
    assert_eq!((progress.moved, progress.remaining), (0, 2));
    fixture.settle().await;
    assert!(leaving_allocations(&fixture.allocations().await).is_empty());
    // With space on another node the drain goes on.
    fixture.neighbours.node("n2", 1);
    let next = |it: &AllocationEntry| is_staying(it) && it.node.as_str() == "n2";
    let next = fixture.until_one("job_a", "has room", next).await;
    fixture.report(&next, ContainerState::Running);
    fixture
        .until("the next to leave", |all| {
            leaving_allocations(all).len() == 1
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_evacuation_respects_limits_until_its_grace_ends() {
    let fixture = Fixture::new(&[4]).await;
    let (_, before) = start_limited_job(&fixture, 3).await;
    let mut free = service("svc_b.0", "ben");
    free.disruption_limit = None;
    fixture.neighbours.submit(&free);
    fixture.report_running("svc_b.0").await;
    let mut item = block(BlockKind::Node, "n1", None);
    item.evacuation = EvacuationPolicy::Graceful { grace_ms: 1_500 };
    let since = SystemClock.now();
    fixture.neighbours.block(&item);
    let two = |all: &Allocations| leaving_allocations(all).len() == 2;
    let all = fixture.until("one of each to leave", two).await;
    assert_eq!(
        leaving_allocations(&all)
            .iter()
            .filter(|it| before.contains_key(it.id.as_str()))
            .count(),
        1
    );
    let all = fixture
        .until("all to leave", |all| leaving_allocations(all).len() == 4)
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
async fn a_block_removed_midway_moves_nothing_more() {
    let fixture = Fixture::new(&[3]).await;
    start_limited_job(&fixture, 3).await;
    let mut item = block(BlockKind::Node, "n1", None);
    item.evacuation = EvacuationPolicy::Graceful { grace_ms: 600_000 };
    fixture.neighbours.block(&item);
    fixture
        .until("one to leave", |all| leaving_allocations(all).len() == 1)
        .await;
    fixture.neighbours.blocks.remove("node/n1");
    fixture.until_withdrawn("clearings", "node/n1").await;
    fixture.confirm_all_ends().await;
    let whole = |all: &Allocations| all.values().filter(|it| is_staying(it)).count() == 3;
    let all = fixture.until("three again", whole).await;
    assert_eq!(
        all.len(),
        4,
        "only the process that was already leaving is replaced"
    );
}
