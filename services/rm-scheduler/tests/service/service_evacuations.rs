//! Tests of drains and evacuations of nodes with processes of services. A process leaves its node
//! only after a successor is reserved elsewhere. Without a successor the process leaves when the
//! deadline has passed.

use hayward_blocklist_api::{BlockKind, EvacuationPolicy};
use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::{DrainOrder, Health};
use hayward_rm_scheduler_api::node_publications::{BlockerReason, ClearingEntry, FactEntry};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason, WaitReason};
use hayward_service::{Clock, SystemClock};
use hayward_vocabulary::{Apart, Exit, ExitCause, Role};

use super::drains::{drain, drain_order};
use super::fixture::{Fixture, allocations_of, is_staying};
use super::neighbours::{block, node};
use super::successor_requests::{process, put_request, request};

const WORK: &str = "svc_1.0";

/// Starts a process on `n1`, the only node.
async fn start_on_n1() -> (Fixture, DemandEntry, AllocationEntry) {
    let fixture = Fixture::new(&[4]).await;
    let demand = process(WORK, Role::Active);
    fixture.neighbours.submit(&demand);
    let old = fixture.report_running(WORK).await;
    (fixture, demand, old)
}

/// Waits until the clearing names this blocker.
async fn until_blocker(fixture: &Fixture, key: &str, why: BlockerReason) -> ClearingEntry {
    let has_blocker = |it: &ClearingEntry| it.blockers.iter().any(|it| it.why == why);
    fixture
        .until_entry("clearings", key, "has this blocker", has_blocker)
        .await
}

async fn until_vacated(fixture: &Fixture, old: &AllocationEntry) -> AllocationEntry {
    let leaves = |it: &AllocationEntry| it.id == old.id && it.vacate.is_some();
    fixture
        .until_one(old.work.as_str(), "is vacated", leaves)
        .await
}

/// Returns the allocation that takes over from `old`.
async fn until_successor(fixture: &Fixture, old: &AllocationEntry) -> AllocationEntry {
    let is_successor =
        |it: &AllocationEntry| it.predecessor.as_ref() == Some(&old.id) && is_staying(it);
    let work = old.work.as_str();
    fixture
        .until_one(work, "has a successor", is_successor)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_process_is_vacated_when_its_successor_is_reserved() {
    let (mut fixture, _, old) = start_on_n1().await;
    drain(&fixture, "n1", 4, drain_order(1));
    let stuck = until_blocker(&fixture, "drain/n1", BlockerReason::NoPlace).await;
    assert_eq!((stuck.total, stuck.remaining), (1, 1));
    let detail = &stuck.blockers[0].detail;
    assert!(detail.contains("1 node could hold it"), "{detail}");
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert!(
        all.len() == 1 && is_staying(&all[0]),
        "the process stays: {all:?}"
    );
    // The work lacks nothing, so its verdict does not say that it waits.
    assert_eq!(
        fixture.verdicts().await[WORK].reason,
        WaitReason::Satisfied,
        "the process still runs"
    );
    fixture.neighbours.node("n2", 1);
    let new = until_successor(&fixture, &old).await;
    let left = until_vacated(&fixture, &old).await;
    let order = left.vacate.clone().unwrap();
    assert_eq!((order.reason, order.purge), (VacateReason::Drained, false));
    assert!(new.granted_at <= order.since && new.node.as_str() == "n2");
    assert!(new.request.is_none() && new.incarnation > old.incarnation);
    fixture.settle().await;
    fixture.restart().await;
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert_eq!(
        all.iter().filter(|it| it.holds()).count(),
        2,
        "a restart grants no second successor"
    );
    fixture.report(&old, ContainerState::Ended);
    let is_cleared = |it: &ClearingEntry| it.remaining == 0;
    fixture
        .until_entry("clearings", "drain/n1", "is empty", is_cleared)
        .await;
    fixture.report(&new, ContainerState::Running);
    let is_done = |it: &ClearingEntry| it.moved == 1 && it.failed == 0;
    fixture
        .until_entry("clearings", "drain/n1", "is done", is_done)
        .await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert_eq!(all.iter().filter(|it| it.holds()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_deadline_a_process_leaves_without_successor_and_its_detail_explains_it() {
    for is_blocked in [true, false] {
        let (fixture, _, old) = start_on_n1().await;
        let end = SystemClock.now().plus_ms(2_000);
        let (key, reason) = if is_blocked {
            let mut item = block(BlockKind::Node, "n1", None);
            item.evacuation = EvacuationPolicy::Graceful { grace_ms: 2_000 };
            fixture.neighbours.block(&item);
            ("node/n1", VacateReason::Blocked)
        } else {
            let order = DrainOrder {
                deadline: Some(end),
                ..drain_order(1)
            };
            drain(&fixture, "n1", 4, order);
            ("drain/n1", VacateReason::Drained)
        };
        until_blocker(&fixture, key, BlockerReason::NoPlace).await;
        let order = until_vacated(&fixture, &old).await.vacate.unwrap();
        assert!(order.since >= end && order.reason == reason, "{order:?}");
        assert!(order.detail.contains("no next place"), "{order:?}");
        // The usual restart follows, as after an immediate evacuation.
        fixture.report(&old, ContainerState::Ended);
        let demand = DemandEntry {
            settled: [old.id.clone()].into(),
            ..process(WORK, Role::Active)
        };
        fixture.neighbours.submit(&demand);
        fixture.until_verdict(WORK, WaitReason::AllBlocked).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_drain_leaves_everything_where_it_was() {
    let (fixture, _, old) = start_on_n1().await;
    drain(&fixture, "n1", 4, drain_order(1));
    until_blocker(&fixture, "drain/n1", BlockerReason::NoPlace).await;
    fixture.neighbours.node("n1", 4);
    fixture.until_withdrawn("clearings", "drain/n1").await;
    fixture.neighbours.node("n2", 4);
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert!(all.len() == 1 && is_staying(&all[0]) && all[0].id == old.id);
    assert_eq!(
        fixture.verdicts().await[WORK].reason,
        WaitReason::Satisfied,
        "its verdict does not mention the drain"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_successor_leaves_the_limit_to_another_of_its_service() {
    let fixture = Fixture::new(&[4]).await;
    let mut bound = process(WORK, Role::Active);
    (bound.disruption_limit, bound.machines) = (Some(1), vec!["n1".parse().unwrap()]);
    let mut free = process("svc_1.1", Role::Active);
    free.disruption_limit = Some(1);
    for demand in [&bound, &free] {
        fixture.neighbours.submit(demand);
        fixture.report_running(demand.work.as_str()).await;
    }
    let old = allocations_of(&fixture.allocations().await, "svc_1.1").remove(0);
    fixture.neighbours.node("n2", 4);
    fixture.settle().await;
    drain(&fixture, "n1", 4, drain_order(1));
    until_successor(&fixture, &old).await;
    until_vacated(&fixture, &old).await;
    // The limit allows one move at a time, so the other process stays.
    let limited = until_blocker(&fixture, "drain/n1", BlockerReason::DisruptionLimit).await;
    assert_eq!(limited.remaining, 2);
    assert!(
        allocations_of(&fixture.allocations().await, WORK)
            .iter()
            .all(is_staying)
    );
}

/// Submits an active process that may use `n1` and `n3`, and its standby that may use `n2`.
fn submit_with_standby(fixture: &Fixture) -> DemandEntry {
    let apart = Apart {
        group: WORK.parse().unwrap(),
        by_label: None,
    };
    let mut active = process(WORK, Role::Active);
    active.apart = Some(apart.clone());
    active.machines = vec!["n1".parse().unwrap(), "n3".parse().unwrap()];
    fixture.neighbours.submit(&active);
    let role = Role::Standby {
        of: WORK.parse().unwrap(),
        replica: 0,
    };
    let mut standby = process("svc_1.0-0", role);
    (standby.apart, standby.machines) = (Some(apart), vec!["n2".parse().unwrap()]);
    fixture.neighbours.submit(&standby);
    active
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_process_with_a_running_standby_leaves_at_once() {
    let fixture = Fixture::new(&[4, 4]).await;
    submit_with_standby(&fixture);
    let old = fixture.report_running(WORK).await;
    fixture.report_running("svc_1.0-0").await;
    fixture.neighbours.node("n3", 4);
    let mut item = block(BlockKind::Node, "n1", None);
    item.evacuation = EvacuationPolicy::Graceful { grace_ms: 600_000 };
    fixture.neighbours.block(&item);
    until_vacated(&fixture, &old).await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert!(all.iter().all(|it| it.predecessor.is_none()), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_process_without_running_standby_gets_its_successor_first() {
    let fixture = Fixture::new(&[4, 0]).await;
    let mut active = submit_with_standby(&fixture);
    let old = fixture.report_running(WORK).await;
    // job-converter binds an active process with standbys to its node.
    active.host = Some(old.node.clone());
    fixture.neighbours.submit(&active);
    fixture.neighbours.node("n3", 4);
    fixture.settle().await;
    drain(&fixture, "n1", 4, drain_order(1));
    let new = until_successor(&fixture, &old).await;
    assert_eq!(new.node.as_str(), "n3");
    // With this reason job-converter begins no failover.
    let order = until_vacated(&fixture, &old).await.vacate.unwrap();
    assert_eq!(order.reason, VacateReason::Moved);
    assert!(order.detail.contains("n1 is drained"), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_and_a_drain_together_give_one_successor() {
    let (fixture, _, old) = start_on_n1().await;
    // A requested move to `n9` waits for that node, so the drain reserves no successor.
    put_request(&fixture, &request(1, Some(&old), Some("n9")));
    fixture.settle().await;
    drain(&fixture, "n1", 4, drain_order(1));
    until_blocker(&fixture, "drain/n1", BlockerReason::Moving).await;
    fixture.neighbours.node("n2", 4);
    fixture.settle().await;
    assert!(
        allocations_of(&fixture.allocations().await, WORK)
            .iter()
            .all(is_staying)
    );
    // The request is withdrawn, so the drain goes on. A second request comes too late.
    fixture.neighbours.requests.remove("req_1");
    let new = until_successor(&fixture, &old).await;
    assert!(new.request.is_none());
    put_request(&fixture, &request(2, Some(&old), None));
    fixture.settle().await;
    fixture.report(&old, ContainerState::Ended);
    fixture
        .until("the end of the old process", |all| {
            all.get(old.id.as_str()).is_none_or(|it| !it.holds())
        })
        .await;
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    let held: Vec<_> = all.iter().filter(|it| it.holds()).collect();
    assert!(held.len() == 1 && held[0].id == new.id, "{all:#?}");
    assert!(is_staying(held[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_is_lost_before_its_start_is_replaced() {
    let (fixture, _, old) = start_on_n1().await;
    fixture.neighbours.node("n2", 4);
    fixture.settle().await;
    drain(&fixture, "n1", 4, drain_order(1));
    let first = until_successor(&fixture, &old).await;
    until_vacated(&fixture, &old).await;
    let mut lost = node("n2", 4);
    lost.health = Health::Lost;
    fixture.neighbours.nodes.put("n2", &lost);
    fixture.neighbours.node("n3", 4);
    let is_replacement = |it: &AllocationEntry| {
        let follows = it.predecessor.as_ref() == Some(&old.id);
        follows && is_staying(it) && it.id != first.id
    };
    let next = fixture
        .until_one(WORK, "has another successor", is_replacement)
        .await;
    assert_eq!(next.node.as_str(), "n3");
}

/// The end of a vacated process is not published as a failure, whatever its cause.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_evacuated_process_is_never_a_fact_against_its_node() {
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
    let fixture = Fixture::new(&[8]).await;
    let work = |index: usize| format!("svc_1.{index}");
    for index in 0..causes.len() {
        fixture
            .neighbours
            .submit(&process(&work(index), Role::Active));
    }
    let mut old = Vec::new();
    for index in 0..causes.len() {
        old.push(fixture.report_running(&work(index)).await);
    }
    fixture.neighbours.node("n2", 8);
    fixture.settle().await;
    drain(&fixture, "n1", 8, drain_order(1));
    for (old, cause) in old.iter().zip(causes) {
        until_successor(&fixture, old).await;
        until_vacated(&fixture, old).await;
        let exit = Exit {
            cause_code: Some("disk_full".to_owned()),
            ..Exit::of(cause, "a test says so")
        };
        fixture.end(old, exit);
    }
    let is_cleared = |it: &ClearingEntry| it.remaining == 0;
    fixture
        .until_entry("clearings", "drain/n1", "is empty", is_cleared)
        .await;
    fixture.settle().await;
    let facts = fixture.entries::<FactEntry>("failures").await;
    assert!(facts.is_empty(), "{facts:?}");
    let all = fixture.allocations().await;
    for index in 0..causes.len() {
        let held = allocations_of(&all, &work(index));
        assert_eq!(held.iter().filter(|it| it.holds()).count(), 1);
    }
}
