//! What leaves a node with its next place reserved, and what does not end when it is told to.

use hayward_container_manager_api::placements::{PlacementReason, PlacementStatus};
use hayward_container_manager_api::{ContainerReport, ContainerState, Goal};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::ExitCause;
use serde_json::json;

use super::agent::{Agent, seen};
use super::placements::{ends, of_service, order, processor, requests, running};

/// The next place of the process, as rm-scheduler reserves it before the other is told to leave.
fn successor(id: &str, node: &str, of: &str) -> AllocationEntry {
    let mut entry = of_service(id, node);
    entry.incarnation = 2;
    entry.predecessor = Some(of.parse().unwrap());
    entry
}

fn second(id: &str, state: ContainerState) -> ContainerReport {
    ContainerReport {
        incarnation: 2,
        ..seen(id, state)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_place_is_held_until_the_end_is_proven_through_restarts() {
    let (mut world, mut old) = running().await;
    world.upstream.put(&successor("alc_2", "n2", "alc_1"));
    world.until_state("alc_2", ContainerState::Ordered).await;
    let mut new = Agent::of(&world, "n2");
    new.poll(0).await;
    assert!(new.desired.is_empty(), "held");
    world.upstream.vacate("alc_1", false);
    old.until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    world.restart().await;
    let (mut old, mut new) = (old.at(&world), new.at(&world));
    old.until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    new.poll(0).await;
    assert!(new.desired.is_empty(), "still held");
    old.report(vec![seen("alc_1", ContainerState::Ended)]).await;
    new.until("the start", |all| all.contains_key("alc_2"))
        .await;
    new.report(vec![second("alc_2", ContainerState::Running)])
        .await;
    world.until_state("alc_2", ContainerState::Running).await;
    let ended = world.show("ann", "alc_1").await.unwrap();
    assert_eq!(ended.entry.exit.unwrap().cause, ExitCause::Intended);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_next_places_never_run_both() {
    let (world, mut old) = running().await;
    let view = order(&world, json!({ "destination_host": "n3" }))
        .await
        .unwrap();
    let request = requests(&world).await.remove(0);
    world.upstream.put(&successor("alc_2", "n2", "alc_1"));
    world.until_state("alc_2", ContainerState::Ordered).await;
    world.upstream.vacate("alc_1", false);
    old.until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    old.report(vec![seen("alc_1", ContainerState::Ended)]).await;
    let mut new = Agent::of(&world, "n2");
    new.until("the start", |all| all.contains_key("alc_2"))
        .await;
    // The order comes too late, and says so; what is granted for it nevertheless is not started.
    let failed = ends(&world, &view.uuid).await;
    assert_eq!(failed.status_code, PlacementStatus::Failed);
    assert_eq!(
        failed.reason_code,
        Some(PlacementReason::ConstraintAtLaunch)
    );
    let mut late = successor("alc_3", "n1", "alc_1");
    (late.incarnation, late.request) = (3, Some(request.id));
    world.upstream.put(&late);
    world.until_state("alc_3", ContainerState::Ordered).await;
    old.poll(0).await;
    assert!(!old.desired.contains_key("alc_3"), "{:?}", old.desired);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_says_why_until_it_does() {
    let (mut world, mut agent) = running().await;
    world.upstream.vacate("alc_1", false);
    agent
        .until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    let stuck = ContainerReport {
        reason: Some("process 7 is in uninterruptible sleep".to_owned()),
        ..seen("alc_1", ContainerState::Stopping)
    };
    agent.report(vec![stuck.clone()]).await;
    let shown = world.show("ann", "alc_1").await.unwrap();
    assert_eq!(shown.entry.state, ContainerState::Stopping);
    assert_eq!(shown.entry.reason, stuck.reason);
    assert_eq!(world.published().await["alc_1"].reason, stuck.reason);
    let quiet = world.revision();
    agent.report(vec![stuck.clone()]).await;
    assert_eq!(world.revision(), quiet, "the same words are no news");
    world.restart().await;
    assert_eq!(world.published().await["alc_1"].reason, stuck.reason);
    let mut agent = agent.at(&world);
    agent.poll(0).await;
    agent
        .report(vec![seen("alc_1", ContainerState::Ended)])
        .await;
    let ended = world.until_state("alc_1", ContainerState::Ended).await;
    assert_eq!(ended.reason, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_expires_says_what_the_scheduler_said() {
    let (world, _old) = running().await;
    let body = json!({ "destination_host": "n2", "request_expiry_ms": 2_000 });
    let view = order(&world, body).await.unwrap();
    let request = requests(&world).await.remove(0);
    let mut entry = processor("svc_1.0", "ann", "dep_1");
    let why = "node n2 has 1 of 2 quanta free".to_owned();
    entry.waits.insert(request.id, why.clone());
    world.upstream.process(&entry);
    let view = ends(&world, &view.uuid).await;
    assert_eq!(view.reason_code, Some(PlacementReason::RequestExpired));
    assert!(view.response_message.ends_with(&why), "{view:?}");
    until("nothing to be asked for", async || {
        requests(&world).await.is_empty().then_some(())
    })
    .await;
}
