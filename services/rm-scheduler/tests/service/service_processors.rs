//! Tests of the processors of a service. A standby never shares a node with its active, work bound
//! to a host waits for that host, and an end is settled before a successor is granted.

use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::{AllocationEntry, WaitReason};
use hayward_vocabulary::{Apart, Exit, ExitCause, NodeName, Processor, Role, Unblock, WorkId};

use super::fixture::{Fixture, allocations_of, is_staying};
use super::neighbours::{node, service};

/// Returns the active `svc_a.0`, or one of its standbys. The label separates fault domains.
fn processor_demand(id: &str, label: Option<&str>) -> DemandEntry {
    let active = WorkId::new("svc_a.0").unwrap();
    let role = match id {
        "svc_a.0" => Role::Active,
        _ => Role::Standby {
            of: active.clone(),
            replica: 0,
        },
    };
    DemandEntry {
        processor: Some(Processor {
            deployment: "svc_a".to_owned(),
            role,
            host_affinity: true,
            failed: false,
        }),
        apart: Some(Apart {
            group: active,
            by_label: label.map(str::to_owned),
        }),
        ..service(id, "ann")
    }
}

fn report_lost(fixture: &Fixture, name: &NodeName) {
    let mut lost = node(name.as_str(), 4);
    lost.health = Health::Lost;
    fixture.neighbours.nodes.put(name.as_str(), &lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_never_on_the_node_of_its_active_and_explains_its_wait() {
    let mut fixture = Fixture::new(&[4]).await;
    fixture
        .neighbours
        .submit(&processor_demand("svc_a.0", None));
    fixture
        .neighbours
        .submit(&processor_demand("svc_a.0-0", None));
    let active = fixture.report_running("svc_a.0").await;
    let verdict = fixture
        .until_verdict("svc_a.0-0", WaitReason::AntiAffinity)
        .await;
    assert_eq!(verdict.unblock, Some(Unblock::AddNode { quanta: 1 }));
    fixture.restart().await;
    fixture.settle().await;
    assert!(allocations_of(&fixture.allocations().await, "svc_a.0-0").is_empty());
    fixture.neighbours.node("n2", 4);
    let standby = fixture.report_running("svc_a.0-0").await;
    assert_ne!(standby.node, active.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_domains_come_from_the_labels_of_nodes() {
    let fixture = Fixture::new(&[]).await;
    for (name, rack) in [("n1", "r1"), ("n2", "r1")] {
        let mut entry = node(name, 4);
        entry.labels.insert("rack".to_owned(), rack.to_owned());
        fixture.neighbours.nodes.put(name, &entry);
    }
    for id in ["svc_a.0", "svc_a.0-0"] {
        fixture
            .neighbours
            .submit(&processor_demand(id, Some("rack")));
    }
    fixture.report_running("svc_a.0").await;
    fixture
        .until_verdict("svc_a.0-0", WaitReason::AntiAffinity)
        .await;
    let mut other = node("n3", 4);
    other.labels.insert("rack".to_owned(), "r2".to_owned());
    fixture.neighbours.nodes.put("n3", &other);
    assert_eq!(
        fixture.report_running("svc_a.0-0").await.node.as_str(),
        "n3"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_bound_to_a_host_goes_nowhere_else_when_the_host_is_lost() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    let mut active = processor_demand("svc_a.0", None);
    fixture.neighbours.submit(&active);
    fixture
        .neighbours
        .submit(&processor_demand("svc_a.0-0", None));
    let (first, standby) = (
        fixture.report_running("svc_a.0").await,
        fixture.report_running("svc_a.0-0").await,
    );
    active.host = Some(first.node.clone());
    fixture.neighbours.submit(&active);
    fixture.settle().await;
    report_lost(&fixture, &first.node);
    let ended = |it: &AllocationEntry| it.id == first.id && !is_staying(it);
    fixture.until_one("svc_a.0", "is lost", ended).await;
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, "svc_a.0");
    assert!(!all.iter().any(is_staying), "{all:#?}");
    // The standby leaves, and the active requests the host of the standby.
    let mut without_processes = processor_demand("svc_a.0-0", None);
    without_processes.max_processes = 0;
    fixture.neighbours.submit(&without_processes);
    let is_vacated = |it: &AllocationEntry| it.id == standby.id && it.vacate.is_some();
    let leaving = fixture
        .until_one("svc_a.0-0", "is vacated", is_vacated)
        .await;
    active.host = Some(standby.node.clone());
    active.settled.insert(first.id.clone());
    fixture.neighbours.submit(&active);
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, "svc_a.0");
    assert!(
        !all.iter().any(is_staying),
        "no successor before the standby has left: {all:#?}"
    );
    fixture.end(&leaving, Exit::of(ExitCause::Intended, ""));
    let successor = fixture.until_one("svc_a.0", "takes over", is_staying).await;
    assert_eq!(successor.node, standby.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_settled_before_a_successor_is_granted() {
    let fixture = Fixture::new(&[4, 4]).await;
    let mut active = processor_demand("svc_a.0", None);
    fixture.neighbours.submit(&active);
    let first = fixture.report_running("svc_a.0").await;
    fixture.end(&first, Exit::of(ExitCause::UserError, ""));
    let ended = |it: &AllocationEntry| it.id == first.id && !it.holds();
    fixture.until_one("svc_a.0", "has ended", ended).await;
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, "svc_a.0");
    assert!(!all.iter().any(is_staying), "{all:#?}");
    active.settled.insert(first.id.clone());
    fixture.neighbours.submit(&active);
    fixture.until_one("svc_a.0", "goes on", is_staying).await;
}
