//! Tests of allocations on lost, suspect and offline nodes, and while a neighbour is silent. Also
//! tests of two publications about nodes:
//!
//! * container-manager follows `closed`, which has the nodes that take no new work, and the lost
//!   nodes with containers that have no allocation;
//! * `machines` has all nodes with their pool and quanta.

use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::node_publications::MachineEntry;
use hayward_rm_scheduler_api::{AllocationState, ClosedEntry, VacateReason, WaitReason};
use hayward_vocabulary::ExitCause;

use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::{job, node, service};

#[tokio::test(flavor = "multi_thread")]
async fn allocations_on_a_lost_node_end_and_are_granted_elsewhere() {
    let fixture = Fixture::new(&[2, 2]).await;
    fixture.neighbours.submit(&service("svc_a.0", "ann"));
    let first = fixture.until_one("svc_a.0", "is there", |_| true).await;
    fixture.report(&first, ContainerState::Running);
    fixture
        .until_one("svc_a.0", "runs", |entry| {
            entry.state == AllocationState::Running
        })
        .await;
    let mut lost = node(first.node.as_str(), 2);
    lost.health = Health::Lost;
    fixture.neighbours.nodes.put(first.node.as_str(), &lost);
    let all = fixture.until("a successor", |all| all.len() == 2).await;
    let ended = &all[first.id.as_str()];
    assert_eq!(ended.state, AllocationState::Ended);
    assert_eq!(ended.exit.as_ref().unwrap().cause, ExitCause::Node);
    let vacate = ended.vacate.as_ref().unwrap();
    assert_eq!(
        (vacate.reason, vacate.purge),
        (VacateReason::NodeLost, true)
    );
    let successor = all.values().find(|entry| entry.id != first.id).unwrap();
    assert_ne!(successor.node, first.node);
    assert_eq!(successor.incarnation, 2);

    // The node comes back and reports the container: the end is final (I6).
    fixture.neighbours.node(first.node.as_str(), 2);
    fixture.report(&first, ContainerState::Running);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(all[first.id.as_str()].state, AllocationState::Ended);
    assert_eq!(all.values().filter(|entry| is_staying(entry)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_node_keeps_its_allocations_and_gets_no_new_ones() {
    let fixture = Fixture::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    fixture.until("one process", |all| all.len() == 1).await;
    let mut suspect = node("n1", 2);
    suspect.health = Health::Suspect;
    fixture.neighbours.nodes.put("n1", &suspect);
    fixture.settle().await;
    demand.max_processes = 2;
    fixture.neighbours.submit(&demand);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(all.len(), 1);
    assert!(all.values().all(is_staying));
    fixture.neighbours.node("n1", 2);
    fixture.until("two processes", |all| all.len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_leave_an_offline_node() {
    let fixture = Fixture::new(&[2]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.until("two processes", |all| all.len() == 2).await;
    let mut off = node("n1", 2);
    off.schedulable = false;
    fixture.neighbours.nodes.put("n1", &off);
    let all = fixture
        .until("all processes to leave", |all| {
            all.values().all(|entry| !is_staying(entry))
        })
        .await;
    let reasons = all
        .values()
        .map(|entry| entry.vacate.as_ref().unwrap().reason);
    assert!(
        reasons
            .into_iter()
            .all(|reason| reason == VacateReason::NodeOffline)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_neighbour_stops_vacates_except_of_withdrawn_work() {
    let mut fixture = Fixture::not_started(&[4, 4]).await;
    fixture.settings.stale_ms = 1_500;
    fixture.start().await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.until("eight processes", |all| all.len() == 8).await;
    fixture.neighbours.submit(&job("job_b", "bob"));
    fixture
        .until("two processes to leave", |all| {
            all.values().filter(|entry| !is_staying(entry)).count() == 2
        })
        .await;
    fixture.neighbours.containers.set_responding(false);
    fixture.until_verdict("job_b", WaitReason::StaleInput).await;

    let mut lost = node("n1", 4);
    lost.health = Health::Lost;
    fixture.neighbours.nodes.put("n1", &lost);
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(
        all.len(),
        8,
        "no successor is granted while the old process may still run"
    );
    assert_eq!(all.values().filter(|entry| is_staying(entry)).count(), 6);
    assert!(
        all.values()
            .all(|entry| entry.state != AllocationState::Ended)
    );
    // The withdrawal is certain, because job-converter itself reported it.
    fixture.neighbours.demand.remove("job_a");
    fixture
        .until("all processes to leave", |all| {
            allocations_of(all, "job_a")
                .iter()
                .all(|entry| !is_staying(entry))
        })
        .await;

    fixture.neighbours.containers.set_responding(true);
    fixture
        .until("the end of all allocations on n1", |all| {
            !all.values().any(|entry| entry.node.as_str() == "n1")
        })
        .await;
}

/// The allocation is purged, ended and removed in one commit. So container-manager learns about the
/// loss only from the published node.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_is_published_while_it_has_containers_without_allocation() {
    for forgotten in [false, true] {
        let mut fixture = Fixture::new(&[2, 2]).await;
        fixture.neighbours.submit(&service("svc_a.0", "ann"));
        let allocation = fixture.report_running("svc_a.0").await;
        let name = allocation.node.as_str();
        fixture.neighbours.demand.remove("svc_a.0");
        let is_vacated = |it: &hayward_rm_scheduler_api::AllocationEntry| it.vacate.is_some();
        fixture.until_one("svc_a.0", "is vacated", is_vacated).await;
        fixture.report(&allocation, ContainerState::Stopping);
        fixture.settle().await;
        assert!(fixture.entries::<ClosedEntry>("closed").await.is_empty());
        if forgotten {
            fixture.neighbours.nodes.remove(name);
        } else {
            let mut lost = node(name, 2);
            lost.health = Health::Lost;
            fixture.neighbours.nodes.put(name, &lost);
        }
        fixture.until("no allocation", Allocations::is_empty).await;
        let lost = |it: &ClosedEntry| it.lost && it.work.is_none();
        fixture.until_entry("closed", name, "is lost", lost).await;
        fixture.restart().await;
        fixture.settle().await;
        fixture.until_entry("closed", name, "is lost", lost).await;
        fixture.neighbours.containers.remove(allocation.id.as_str());
        fixture.until_withdrawn("closed", name).await;
    }
}

/// A responsive node ends the container itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_responsive_node_is_not_published_for_a_container_without_allocation() {
    let fixture = Fixture::new(&[2]).await;
    let demand = service("svc_a.0", "ann");
    fixture.neighbours.submit(&demand);
    let allocation = fixture.report_running("svc_a.0").await;
    let mut other = super::neighbours::container(&allocation, ContainerState::Running);
    other.id = "alc_without_allocation".parse().unwrap();
    fixture.neighbours.containers.put(other.id.as_str(), &other);
    fixture.settle().await;
    assert!(fixture.entries::<ClosedEntry>("closed").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_published_with_pool_and_quanta_of_the_policy() {
    let fixture = Fixture::new(&[4, 8]).await;
    let is_present = |_: &MachineEntry| true;
    let machine: MachineEntry = fixture
        .until_entry("machines", "n2", "is there", is_present)
        .await;
    assert_eq!(
        (machine.pool.as_str(), machine.ready, machine.quanta),
        ("default", true, 8)
    );
    fixture.neighbours.node("n3", 2);
    fixture
        .until_entry("machines", "n3", "has joined", is_present)
        .await;
    let mut restarted = node("n2", 8);
    restarted.agent_instance = "second".into();
    restarted.schedulable = false;
    fixture.neighbours.nodes.put("n2", &restarted);
    let is_off = |it: &MachineEntry| !it.ready;
    fixture
        .until_entry("machines", "n2", "is off", is_off)
        .await;
    fixture.neighbours.nodes.remove("n1");
    fixture.until_withdrawn("machines", "n1").await;
}
