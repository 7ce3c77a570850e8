//! Successors of a container that must leave: the successor is held until the end of its
//! predecessor is proven.
//!
//! Start state: the processor `svc_1.0` of the user ann runs on `n1` in container `alc_1`.

use hayward_container_manager_api::placements::{PlacementReason, PlacementStatus};
use hayward_container_manager_api::{ContainerReport, ContainerState};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::ExitCause;
use serde_json::json;

use super::fake_agent::{FakeAgent, container_report};
use super::placements::{
    open_requests, running_service, service_allocation, submit, wait_until_final,
};

/// Creates the successor that rm-scheduler reserves before it orders the container to leave.
fn successor(id: &str, node: &str, predecessor: &str) -> AllocationEntry {
    let mut entry = service_allocation(id, node);
    entry.incarnation = 2;
    entry.predecessor = Some(predecessor.parse().unwrap());
    entry
}

fn successor_report(id: &str, state: ContainerState) -> ContainerReport {
    ContainerReport {
        incarnation: 2,
        ..container_report(id, state)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_is_held_until_the_end_is_proven_across_restarts() {
    let (mut fixture, mut old_agent) = running_service().await;
    fixture
        .scheduler
        .publish(&successor("alc_2", "n2", "alc_1"));
    fixture
        .wait_for_state("alc_2", ContainerState::Ordered)
        .await;
    let mut new_agent = FakeAgent::new(&fixture, "n2");
    new_agent.poll(0).await;
    assert!(new_agent.desired.is_empty(), "the successor is held");
    fixture.scheduler.vacate("alc_1", false);
    old_agent.wait_for_stop_order("alc_1").await;
    fixture.restart().await;
    let (mut old_agent, mut new_agent) =
        (old_agent.reconnect(&fixture), new_agent.reconnect(&fixture));
    old_agent.wait_for_stop_order("alc_1").await;
    new_agent.poll(0).await;
    assert!(new_agent.desired.is_empty(), "the successor is still held");
    old_agent.report_state("alc_1", ContainerState::Ended).await;
    new_agent.wait_for_container("alc_2").await;
    new_agent
        .report(vec![successor_report("alc_2", ContainerState::Running)])
        .await;
    fixture
        .wait_for_state("alc_2", ContainerState::Running)
        .await;
    let ended = fixture.show_container("ann", "alc_1").await.unwrap();
    assert_eq!(ended.entry.exit.unwrap().cause, ExitCause::Intended);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_successors_never_both_run() {
    let (fixture, mut old_agent) = running_service().await;
    let view = submit(&fixture, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    let request = open_requests(&fixture).await.remove(0);
    fixture
        .scheduler
        .publish(&successor("alc_2", "n2", "alc_1"));
    fixture
        .wait_for_state("alc_2", ContainerState::Ordered)
        .await;
    fixture.scheduler.vacate("alc_1", false);
    old_agent.wait_for_stop_order("alc_1").await;
    old_agent.report_state("alc_1", ContainerState::Ended).await;
    let mut new_agent = FakeAgent::new(&fixture, "n2");
    new_agent.wait_for_container("alc_2").await;
    // The placement fails, because the process has another successor. A container that is granted
    // for the placement later is not started.
    let failed = wait_until_final(&fixture, &view.uuid).await;
    assert_eq!(failed.status_code, PlacementStatus::Failed);
    assert_eq!(
        failed.reason_code,
        Some(PlacementReason::ConstraintAtLaunch)
    );
    let mut late = successor("alc_3", "n1", "alc_1");
    (late.incarnation, late.request) = (3, Some(request.id));
    fixture.scheduler.publish(&late);
    fixture
        .wait_for_state("alc_3", ContainerState::Ordered)
        .await;
    old_agent.poll(0).await;
    assert!(
        !old_agent.desired.contains_key("alc_3"),
        "{:?}",
        old_agent.desired
    );
}
