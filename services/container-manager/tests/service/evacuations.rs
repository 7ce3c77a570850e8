//! Containers that leave with a reserved successor, and containers that do not end.
//!
//! Start state: the processor `svc_1.0` of the user ann runs on `n1` in container `alc_1`.

use hayward_container_manager_api::placements::{PlacementReason, PlacementStatus};
use hayward_container_manager_api::{ContainerReport, ContainerState, Goal};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::ExitCause;
use serde_json::json;

use super::agent::{Agent, container_report};
use super::placements::{
    open_requests, processor_entry, running_service, service_allocation, submit, until_final,
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
    fixture.until_state("alc_2", ContainerState::Ordered).await;
    let mut new_agent = Agent::new(&fixture, "n2");
    new_agent.poll(0).await;
    assert!(new_agent.desired.is_empty(), "the successor is held");
    fixture.scheduler.vacate("alc_1", false);
    old_agent
        .until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    fixture.restart().await;
    let (mut old_agent, mut new_agent) =
        (old_agent.reconnect(&fixture), new_agent.reconnect(&fixture));
    old_agent
        .until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    new_agent.poll(0).await;
    assert!(new_agent.desired.is_empty(), "the successor is still held");
    old_agent
        .report(vec![container_report("alc_1", ContainerState::Ended)])
        .await;
    new_agent
        .until("the start", |all| all.contains_key("alc_2"))
        .await;
    new_agent
        .report(vec![successor_report("alc_2", ContainerState::Running)])
        .await;
    fixture.until_state("alc_2", ContainerState::Running).await;
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
    fixture.until_state("alc_2", ContainerState::Ordered).await;
    fixture.scheduler.vacate("alc_1", false);
    old_agent
        .until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    old_agent
        .report(vec![container_report("alc_1", ContainerState::Ended)])
        .await;
    let mut new_agent = Agent::new(&fixture, "n2");
    new_agent
        .until("the start", |all| all.contains_key("alc_2"))
        .await;
    // The placement fails, because the process has another successor. A container that is granted
    // for the placement later is not started.
    let failed = until_final(&fixture, &view.uuid).await;
    assert_eq!(failed.status_code, PlacementStatus::Failed);
    assert_eq!(
        failed.reason_code,
        Some(PlacementReason::ConstraintAtLaunch)
    );
    let mut late = successor("alc_3", "n1", "alc_1");
    (late.incarnation, late.request) = (3, Some(request.id));
    fixture.scheduler.publish(&late);
    fixture.until_state("alc_3", ContainerState::Ordered).await;
    old_agent.poll(0).await;
    assert!(
        !old_agent.desired.contains_key("alc_3"),
        "{:?}",
        old_agent.desired
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_end_shows_why() {
    let (mut fixture, mut agent) = running_service().await;
    fixture.scheduler.vacate("alc_1", false);
    agent
        .until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    let stuck = ContainerReport {
        reason: Some("process 7 is in uninterruptible sleep".to_owned()),
        ..container_report("alc_1", ContainerState::Stopping)
    };
    agent.report(vec![stuck.clone()]).await;
    let view = fixture.show_container("ann", "alc_1").await.unwrap();
    assert_eq!(view.entry.state, ContainerState::Stopping);
    assert_eq!(view.entry.reason, stuck.reason);
    assert_eq!(
        fixture.published_containers().await["alc_1"].reason,
        stuck.reason
    );
    let revision = fixture.revision();
    agent.report(vec![stuck.clone()]).await;
    assert_eq!(fixture.revision(), revision, "the same reason is no change");
    fixture.restart().await;
    assert_eq!(
        fixture.published_containers().await["alc_1"].reason,
        stuck.reason
    );
    let mut agent = agent.reconnect(&fixture);
    agent.poll(0).await;
    agent
        .report(vec![container_report("alc_1", ContainerState::Ended)])
        .await;
    let ended = fixture.until_state("alc_1", ContainerState::Ended).await;
    assert_eq!(ended.reason, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_request_shows_the_reason_of_the_scheduler() {
    let (fixture, _old_agent) = running_service().await;
    let body = json!({ "destination_host": "n2", "request_expiry_ms": 2_000 });
    let view = submit(&fixture, body).await.unwrap();
    let request = open_requests(&fixture).await.remove(0);
    let mut entry = processor_entry("svc_1.0", "ann", "dep_1");
    let reason = "node n2 has 1 of 2 quanta free".to_owned();
    entry.waits.insert(request.id, reason.clone());
    fixture.scheduler.publish_processor(&entry);
    let view = until_final(&fixture, &view.uuid).await;
    assert_eq!(view.reason_code, Some(PlacementReason::RequestExpired));
    assert!(view.response_message.ends_with(&reason), "{view:?}");
    until("the request is withdrawn", async || {
        open_requests(&fixture).await.is_empty().then_some(())
    })
    .await;
}
