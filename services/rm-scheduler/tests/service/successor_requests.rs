//! Tests of requests of container-manager for a successor of a process. The space of the successor
//! is reserved before the old process ends. The work never has one process too many or too few.

use hayward_container_manager_api::{ContainerState, RequestEntry};
use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler_api::{
    AllocationEntry, AllocationState, ClosedEntry, ProcessorEntry, VacateReason,
};
use hayward_vocabulary::{Apart, Exit, ExitCause, NodeName, Processor, Role};

use super::fixture::{Fixture, allocations_of, is_staying};
use super::neighbours::{block, service};

const WORK: &str = "svc_1.0";

/// Returns a process of the service `svc_1` with a stable identity.
pub fn process(id: &str, role: Role) -> DemandEntry {
    let mut demand = service(id, "ann");
    demand.service = Some("svc_1".parse().unwrap());
    demand.processor = Some(Processor {
        deployment: "dep_1".into(),
        role,
        host_affinity: true,
        failed: false,
    });
    demand
}

/// Returns a request for a successor. With `host` only this node is allowed.
pub fn request(
    number: u32,
    predecessor: Option<&AllocationEntry>,
    host: Option<&str>,
) -> RequestEntry {
    RequestEntry {
        id: format!("req_{number}"),
        work: WORK.parse().unwrap(),
        predecessor: predecessor.map(|it| it.id.clone()),
        host: host.map(|name| NodeName::new(name).unwrap()),
        exclude: Vec::new(),
        force: false,
    }
}

pub fn put_request(fixture: &Fixture, request: &RequestEntry) {
    fixture.neighbours.requests.put(&request.id, request);
}

async fn until_granted(fixture: &Fixture, id: &str) -> AllocationEntry {
    let is_granted = |it: &AllocationEntry| it.request.as_deref() == Some(id) && is_staying(it);
    fixture.until_one(WORK, "has a successor", is_granted).await
}

fn node_name(entry: &AllocationEntry) -> &str {
    entry.node.as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_successor_holds_space_next_to_its_predecessor_and_takes_over() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&process(WORK, Role::Active));
    let old = fixture.report_running(WORK).await;
    fixture.neighbours.node("n2", 4);
    put_request(&fixture, &request(1, Some(&old), Some("n2")));
    let new = until_granted(&fixture, "req_1").await;
    assert_eq!(
        (node_name(&new), new.predecessor.as_ref()),
        ("n2", Some(&old.id))
    );
    assert_eq!(new.state, AllocationState::Assigned);
    assert!(new.launch.is_some() && new.incarnation > old.incarnation);
    // Two live allocations of work with one process are not too many.
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(all.values().filter(|it| is_staying(it)).count(), 2);

    fixture.report(&old, ContainerState::Ended);
    let ended = |it: &AllocationEntry| it.id == old.id && !it.holds();
    let ended = fixture.until_one(WORK, "ended", ended).await;
    assert_eq!(
        ended.vacate.unwrap().reason,
        VacateReason::Moved,
        "the end is no failure"
    );
    fixture.report(&new, ContainerState::Running);
    fixture.neighbours.requests.remove("req_1");
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    let holding: Vec<_> = all.iter().filter(|it| it.holds()).collect();
    assert_eq!(
        holding.len(),
        1,
        "no third process, and the successor stays"
    );
    assert_eq!(holding[0].id, new.id);
    assert!(is_staying(holding[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_of_a_withdrawn_request_is_vacated() {
    let fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&process(WORK, Role::Active));
    let old = fixture.report_running(WORK).await;
    put_request(&fixture, &request(1, Some(&old), None));
    let new = until_granted(&fixture, "req_1").await;
    fixture.neighbours.requests.remove("req_1");
    let leaves = |it: &AllocationEntry| it.id == new.id && it.vacate.is_some();
    let vacated = fixture.until_one(WORK, "is vacated", leaves).await;
    assert_eq!(vacated.vacate.unwrap().reason, VacateReason::Moved);
    fixture.report(&new, ContainerState::Ended);
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert!(
        all.iter().any(|it| it.id == old.id && is_staying(it)),
        "the first process stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_space_changes_nothing() {
    let fixture = Fixture::new(&[1]).await;
    let mut demand = process(WORK, Role::Active);
    fixture.neighbours.submit(&demand);
    let old = fixture.report_running(WORK).await;
    put_request(&fixture, &request(1, Some(&old), Some("n1")));
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert_eq!(all.len(), 1);
    assert!(is_staying(&all[0]));
    // The process ends. A pending request replaces the usual restart.
    put_request(&fixture, &request(2, Some(&old), Some("n9")));
    fixture.neighbours.requests.remove("req_1");
    fixture.settle().await;
    fixture.end(&old, Exit::of(ExitCause::UserError, "status 1"));
    let moved = |it: &AllocationEntry| it.id == old.id && !it.holds() && it.vacate.is_some();
    fixture
        .until_one(WORK, "ended as part of a move", moved)
        .await;
    demand.settled.insert(old.id.clone());
    fixture.neighbours.submit(&demand);
    fixture.settle().await;
    assert!(
        !allocations_of(&fixture.allocations().await, WORK)
            .iter()
            .any(is_staying)
    );
    // After the request is withdrawn, exactly one process is granted.
    fixture.neighbours.requests.remove("req_2");
    fixture
        .until_one(WORK, "is started again", is_staying)
        .await;
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert_eq!(all.iter().filter(|it| it.holds()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_process_that_is_revived_keeps_its_allocation() {
    let mut fixture = Fixture::new(&[4]).await;
    let mut demand = process(WORK, Role::Active);
    demand.processor.as_mut().unwrap().failed = true;
    demand.max_processes = 0;
    fixture.neighbours.submit(&demand);
    fixture.settle().await;
    assert_eq!(fixture.allocations().await.len(), 0);
    put_request(&fixture, &request(1, None, None));
    let new = until_granted(&fixture, "req_1").await;
    fixture.report(&new, ContainerState::Running);
    fixture.neighbours.requests.remove("req_1");
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert!(all.len() == 1 && is_staying(&all[0]), "{all:?}");
    // The same holds after a restart, while the demand still allows no process.
    fixture.restart().await;
    fixture.settle().await;
    let all = allocations_of(&fixture.allocations().await, WORK);
    assert!(all.len() == 1 && is_staying(&all[0]), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_request_is_published_with_its_reason() {
    let fixture = Fixture::new(&[1]).await;
    fixture.neighbours.submit(&process(WORK, Role::Active));
    let old = fixture.report_running(WORK).await;
    put_request(&fixture, &request(1, Some(&old), None));
    let waits = |it: &ProcessorEntry| it.waits.contains_key("req_1");
    let processor = fixture
        .until_entry("processors", WORK, "has a reason", waits)
        .await;
    assert!(!processor.waits["req_1"].is_empty());
    fixture.neighbours.node("n2", 1);
    until_granted(&fixture, "req_1").await;
    let has_no_waits = |it: &ProcessorEntry| it.waits.is_empty();
    fixture
        .until_entry("processors", WORK, "has no waiting request", has_no_waits)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_avoids_the_hosts_of_partners_and_excluded_hosts() {
    let fixture = Fixture::new(&[4, 4, 4]).await;
    let apart = Apart {
        group: WORK.parse().unwrap(),
        by_label: None,
    };
    let mut active = process(WORK, Role::Active);
    (active.apart, active.machines) = (Some(apart.clone()), vec!["n1".parse().unwrap()]);
    let role = Role::Standby {
        of: WORK.parse().unwrap(),
        replica: 0,
    };
    let mut standby = process("svc_1.0-0", role);
    (standby.apart, standby.machines) = (Some(apart), vec!["n2".parse().unwrap()]);
    fixture.neighbours.submit(&active);
    fixture.neighbours.submit(&standby);
    let old = fixture.report_running(WORK).await;
    let partner = fixture.report_running("svc_1.0-0").await;
    assert_eq!((node_name(&old), node_name(&partner)), ("n1", "n2"));
    // A successor is never on the node of its standby.
    put_request(&fixture, &request(1, Some(&old), Some("n2")));
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert!(all.values().all(|it| it.request.is_none()), "{all:?}");
    fixture.neighbours.requests.remove("req_1");
    // The node of the predecessor is allowed.
    put_request(&fixture, &request(2, Some(&old), Some("n1")));
    assert_eq!(node_name(&until_granted(&fixture, "req_2").await), "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_and_closed_nodes_are_published() {
    let fixture = Fixture::new(&[4, 4]).await;
    fixture.neighbours.submit(&process(WORK, Role::Active));
    fixture.neighbours.submit(&service("svc_2.0", "ann"));
    let is_published = |it: &ProcessorEntry| it.processor.deployment == "dep_1";
    let processor = fixture
        .until_entry("processors", WORK, "is published", is_published)
        .await;
    assert_eq!(processor.user.as_str(), "ann");
    let all: std::collections::BTreeMap<String, ProcessorEntry> =
        fixture.entries("processors").await;
    assert_eq!(all.len(), 1);

    let mut item = block(hayward_blocklist_api::BlockKind::Node, "n2", None);
    item.removal_no = 7;
    fixture.block(&item).await;
    let closed = |it: &ClosedEntry| it.work.is_none();
    let closed = fixture
        .until_entry("closed", "n2", "is published", closed)
        .await;
    assert!(closed.reason.contains("it smells"));
    fixture.neighbours.blocks.remove(&item.key());
    fixture.until_withdrawn("closed", "n2").await;
    fixture.neighbours.demand.remove(WORK);
    fixture.until_withdrawn("processors", WORK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_outside_the_list_is_granted_only_by_force() {
    let fixture = Fixture::new(&[4]).await;
    let mut demand = process(WORK, Role::Active);
    demand.machines = vec!["n1".parse().unwrap()];
    fixture.neighbours.submit(&demand);
    let old = fixture.report_running(WORK).await;
    fixture.neighbours.node("n2", 4);
    put_request(&fixture, &request(1, Some(&old), Some("n2")));
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert!(all.len() == 1 && all.values().all(is_staying), "{all:?}");
    fixture.neighbours.requests.remove("req_1");
    let forced = RequestEntry {
        force: true,
        ..request(2, Some(&old), Some("n2"))
    };
    put_request(&fixture, &forced);
    assert_eq!(node_name(&until_granted(&fixture, "req_2").await), "n2");
}
