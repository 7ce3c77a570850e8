//! Tests of work on unreachable nodes. The work waits for its node, or it is replaced at once or
//! after a delay (W7).

use std::collections::BTreeSet;

use hayward_container_manager_api::ContainerState;
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason, VerdictEntry};
use hayward_service::{Clock, SystemClock};
use hayward_vocabulary::WhenUnreachable;

use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::{block, job, node, service};

fn service_with(work: &str, when: WhenUnreachable) -> DemandEntry {
    DemandEntry {
        when_unreachable: when,
        ..service(work, "ann")
    }
}

fn report_lost(fixture: &Fixture, name: &str) {
    let mut lost = node(name, 2);
    lost.health = Health::Lost;
    fixture.neighbours.nodes.put(name, &lost);
}

fn is_unreachable(entry: &AllocationEntry) -> bool {
    entry.state == AllocationState::Unreachable && entry.vacate.is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_waits_for_its_node_resumes_when_the_node_is_back() {
    let mut fixture = Fixture::new(&[2, 2]).await;
    fixture
        .neighbours
        .submit(&service_with("svc_a.0", WhenUnreachable::Wait));
    let first = fixture.report_running("svc_a.0").await;
    let node = first.node.as_str();
    // Work that does not wait runs on the same node.
    let mut other_service = service("svc_b.0", "ben");
    other_service.machines = vec![first.node.clone()];
    fixture.neighbours.submit(&other_service);
    let replaced = fixture.report_running("svc_b.0").await;
    other_service.machines = Vec::new();
    fixture.neighbours.submit(&other_service);
    report_lost(&fixture, node);
    fixture
        .until_one("svc_a.0", "is unreachable", is_unreachable)
        .await;
    let verdict = fixture
        .until_verdict_matches("svc_a.0", "waits for its node", |it: &VerdictEntry| {
            it.detail.contains("is waited for")
        })
        .await;
    assert!(verdict.detail.contains(node), "{}", verdict.detail);
    let ended = |it: &AllocationEntry| it.id == replaced.id && !it.holds();
    let ended = fixture.until_one("svc_b.0", "has ended", ended).await;
    let vacate = ended.vacate.unwrap();
    assert_eq!(
        (vacate.reason, vacate.purge),
        (VacateReason::NodeLost, true)
    );
    fixture.until_one("svc_b.0", "goes on", is_staying).await;

    // `svc_a.0` stays while its node cannot receive orders, also after a restart.
    fixture
        .neighbours
        .block(&block(hayward_blocklist_api::BlockKind::Node, node, None));
    fixture.restart().await;
    fixture.settle().await;
    let all = fixture.allocations().await;
    let waiting = allocations_of(&all, "svc_a.0");
    let is_waiting = waiting.len() == 1 && is_unreachable(&waiting[0]);
    assert!(is_waiting, "{waiting:#?}");
    fixture.neighbours.blocks.remove(&format!("node/{node}"));

    fixture.neighbours.node(node, 2);
    let runs = |it: &AllocationEntry| it.state == AllocationState::Running;
    let back = fixture.until_one("svc_a.0", "runs", runs).await;
    assert_eq!(back.id, first.id);
    fixture
        .until_verdict_matches("svc_a.0", "no longer waits", |it: &VerdictEntry| {
            !it.detail.contains("is waited for")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_replaced_after_its_replacement_delay() {
    let fixture = Fixture::new(&[2, 2]).await;
    let when = WhenUnreachable::ReplaceAfter { ms: 1_200 };
    fixture.neighbours.submit(&service_with("svc_a.0", when));
    let first = fixture.report_running("svc_a.0").await;
    let since = SystemClock.now();
    report_lost(&fixture, first.node.as_str());
    fixture
        .until_one("svc_a.0", "is unreachable", is_unreachable)
        .await;
    fixture
        .until_verdict_matches(
            "svc_a.0",
            "has the time of the replacement",
            |it: &VerdictEntry| it.detail.contains("is replaced at 2"),
        )
        .await;
    let next = |it: &AllocationEntry| is_staying(it) && it.id != first.id;
    let next = fixture.until_one("svc_a.0", "is replaced", next).await;
    assert!(next.granted_at >= since.plus_ms(1_200));
    let all = fixture.allocations().await;
    let vacate = all[first.id.as_str()].vacate.as_ref().unwrap();
    assert_eq!(
        (vacate.reason, vacate.purge),
        (VacateReason::NodeLost, true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_back_in_time_keeps_its_work() {
    let fixture = Fixture::new(&[2, 2]).await;
    let when = WhenUnreachable::ReplaceAfter { ms: 3_600_000 };
    let mut demand = job("job_a", "ann");
    (demand.max_processes, demand.when_unreachable) = (1, when);
    fixture.neighbours.submit(&demand);
    let first = fixture.report_running("job_a").await;
    report_lost(&fixture, first.node.as_str());
    fixture
        .until_one("job_a", "is unreachable", is_unreachable)
        .await;
    // The node is back before the delay is over.
    fixture.neighbours.node(first.node.as_str(), 2);
    let runs = |it: &AllocationEntry| it.state == AllocationState::Running;
    fixture.until_one("job_a", "runs", runs).await;
    fixture.settle().await;
    let all = fixture.allocations().await;
    let ids: BTreeSet<_> = allocations_of(&all, "job_a")
        .into_iter()
        .map(|it| it.id)
        .collect();
    assert_eq!(ids, [first.id].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_is_published_as_such_and_replaced_when_its_node_is_lost() {
    let mut fixture = Fixture::new(&[2, 2]).await;
    fixture
        .neighbours
        .submit(&service_with("svc_a.0", WhenUnreachable::Exclusive));
    let first = fixture.report_running("svc_a.0").await;
    assert!(first.exclusive);
    fixture.restart().await;
    let mut suspect = node(first.node.as_str(), 2);
    suspect.health = Health::Suspect;
    fixture.neighbours.nodes.put(first.node.as_str(), &suspect);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert!(all.len() == 1 && all.values().all(|it| it.exclusive && is_staying(it)));
    report_lost(&fixture, first.node.as_str());
    let next = |it: &AllocationEntry| is_staying(it) && it.id != first.id;
    assert!(
        fixture
            .until_one("svc_a.0", "goes on", next)
            .await
            .exclusive
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_work_on_a_lost_node_is_not_waited_for() {
    let fixture = Fixture::new(&[2]).await;
    fixture
        .neighbours
        .submit(&service_with("svc_a.0", WhenUnreachable::Wait));
    let first = fixture.report_running("svc_a.0").await;
    report_lost(&fixture, "n1");
    fixture
        .until_one("svc_a.0", "is unreachable", is_unreachable)
        .await;
    fixture.report(&first, ContainerState::Launching);
    fixture.settle().await;
    assert!(is_unreachable(
        &fixture.allocations().await[first.id.as_str()]
    ));
    fixture.neighbours.demand.remove("svc_a.0");
    fixture.until("no allocation", Allocations::is_empty).await;
}
