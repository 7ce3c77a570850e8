//! The lifecycle of a container, from the order to its removal.

use std::collections::BTreeMap;

use hayward_container_manager_api::{ContainerReport, ContainerState, Goal};
use hayward_vocabulary::ExitCause;

use super::fake_agent::{FakeAgent, container_report};
use super::fake_scheduler::allocation;
use super::fixture::Fixture;
use super::placements::running_service;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_ends_and_is_archived_despite_repeated_and_late_reports() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    agent.wait_for_container("alc_1").await;
    let order = &agent.desired["alc_1"];
    assert_eq!((order.goal, order.incarnation), (Goal::Run, 1));
    assert_eq!(order.launch.environment["SECRET"], "hush");
    fixture
        .wait_for_state("alc_1", ContainerState::Ordered)
        .await;

    // The container has not started yet, so it is not lost when a complete report does not name it.
    agent.report(vec![]).await;
    fixture
        .wait_for_state("alc_1", ContainerState::Ordered)
        .await;

    let early = agent.next_report(vec![]);
    let launching = agent.next_report(vec![container_report("alc_1", ContainerState::Launching)]);
    let running = agent.next_report(vec![container_report("alc_1", ContainerState::Running)]);
    agent.send(&launching).await.unwrap();
    fixture
        .wait_for_state("alc_1", ContainerState::Launching)
        .await;
    agent.send(&running).await.unwrap();
    let running_entry = fixture
        .wait_for_state("alc_1", ContainerState::Running)
        .await;

    // These reports have no effect: late, repeated, of an older instance, incomplete, or without a
    // cursor.
    let revision = fixture.revision();
    for late in [&early, &launching, &running, &running] {
        agent.send(late).await.unwrap();
    }
    let mut older_instance = FakeAgent::new(&fixture, "n1");
    older_instance.instance = "zeroth".into();
    older_instance.cursor.clone_from(&agent.cursor);
    older_instance.report(vec![]).await;
    let mut incomplete = agent.next_report(vec![]);
    incomplete.complete = false;
    agent.send(&incomplete).await.unwrap();
    let mut without_cursor = agent.next_report(vec![]);
    without_cursor.cursor = None;
    agent.send(&without_cursor).await.unwrap();
    assert_eq!(
        fixture.revision(),
        revision,
        "a report that changes nothing commits nothing"
    );

    agent.poll(0).await;
    agent.report_state("alc_1", ContainerState::Ended).await;
    let ended = fixture.wait_for_state("alc_1", ContainerState::Ended).await;
    let exit = ended.exit.clone().unwrap();
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(3)));
    agent.send(&running).await.unwrap();
    assert_eq!(fixture.published_containers().await["alc_1"], ended);
    assert_ne!(running_entry, ended);
    agent
        .wait_until("the desired set is empty", BTreeMap::is_empty)
        .await;

    // The container stays published until its allocation is removed, and readable after that.
    fixture.scheduler.remove("alc_1");
    fixture
        .wait_until("the container is archived", BTreeMap::is_empty)
        .await;
    let view = fixture.show_container("ann", "alc_1").await.unwrap();
    assert_eq!(view.entry, ended);
    let revision = fixture.revision();
    agent.report_state("alc_1", ContainerState::Running).await;
    assert_eq!(fixture.revision(), revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_counts_as_lost_only_after_a_later_report() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    agent.wait_for_container("alc_1").await;
    let revision = agent.report_state("alc_1", ContainerState::Running).await;
    // This report was written before the agent had seen the revision with the running container.
    agent.report(vec![]).await;
    fixture
        .wait_for_state("alc_1", ContainerState::Running)
        .await;
    agent.poll(0).await;
    assert!(
        agent
            .cursor
            .clone()
            .unwrap()
            .ends_with(&format!("-{revision}"))
    );
    agent.report(vec![]).await;
    let lost = fixture.wait_for_state("alc_1", ContainerState::Ended).await;
    assert_eq!(lost.exit.unwrap().cause, ExitCause::Node);
    agent
        .wait_until("the desired set is empty", BTreeMap::is_empty)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_must_leave_are_stopped_and_end_as_intended() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    for id in ["alc_1", "alc_2", "alc_3"] {
        fixture.scheduler.publish(&allocation(id, "n1"));
    }
    agent.wait_for_container_count(3).await;
    let cursor_before_stop = agent.cursor.clone();
    agent
        .report(
            ["alc_1", "alc_2"]
                .map(|id| container_report(id, ContainerState::Running))
                .into(),
        )
        .await;
    for id in ["alc_1", "alc_2", "alc_3"] {
        fixture.scheduler.vacate(id, false);
    }
    agent
        .wait_until("the stops are ordered", |all| {
            all.values().all(|entry| entry.goal == Goal::Stop)
        })
        .await;
    fixture
        .wait_for_state("alc_3", ContainerState::Stopping)
        .await;
    // alc_2 ended before the agent had received the stop.
    let cursor_after_stop = std::mem::replace(&mut agent.cursor, cursor_before_stop);
    let running = container_report("alc_1", ContainerState::Running);
    agent
        .report(vec![
            running,
            container_report("alc_2", ContainerState::Ended),
        ])
        .await;
    let ended = fixture.wait_for_state("alc_2", ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::UserError);
    fixture
        .wait_for_state("alc_1", ContainerState::Stopping)
        .await;
    // The agent carries out the stops: alc_1 was stopped, and alc_3 never started.
    agent.cursor = cursor_after_stop;
    agent.report_state("alc_1", ContainerState::Ended).await;
    for id in ["alc_1", "alc_3"] {
        let ended = fixture.wait_for_state(id, ContainerState::Ended).await;
        assert_eq!(ended.exit.unwrap().cause, ExitCause::Intended, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_container_ends_without_its_node() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    agent.wait_for_container("alc_1").await;
    agent.report_state("alc_1", ContainerState::Running).await;
    fixture.scheduler.vacate("alc_1", true);
    let ended = fixture.wait_for_state("alc_1", ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Node);
    agent
        .wait_until("the desired set is empty", BTreeMap::is_empty)
        .await;
    // The node returns and reports an end that is no longer awaited.
    agent.report_state("alc_1", ContainerState::Ended).await;
    assert_eq!(
        fixture.published_containers().await["alc_1"]
            .exit
            .as_ref()
            .unwrap()
            .cause,
        ExitCause::Node
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_allocation_is_stopped_first() {
    let fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    agent.wait_for_container("alc_1").await;
    agent.report_state("alc_1", ContainerState::Running).await;
    fixture.scheduler.remove("alc_1");
    agent.wait_for_stop_order("alc_1").await;
    agent.report_state("alc_1", ContainerState::Ended).await;
    fixture
        .wait_until("the container is archived", BTreeMap::is_empty)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservations_and_allocations_vacated_before_their_start_start_nothing() {
    let fixture = Fixture::new().await;
    let mut reservation = allocation("alc_1", "n1");
    reservation.launch = None;
    let mut vacated = allocation("alc_2", "n1");
    fixture.scheduler.publish(&allocation("alc_3", "n2"));
    fixture
        .wait_for_state("alc_3", ContainerState::Ordered)
        .await;
    vacated.vacate = Some(hayward_rm_scheduler_api::Vacate {
        reason: hayward_rm_scheduler_api::VacateReason::WorkGone,
        detail: String::new(),
        since: vacated.granted_at,
        purge: false,
    });
    fixture.scheduler.publish(&reservation);
    fixture.scheduler.publish(&vacated);
    let ended = fixture.wait_for_state("alc_2", ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Intended);
    assert!(!fixture.published_containers().await.contains_key("alc_1"));
    let mut agent = FakeAgent::new(&fixture, "n1");
    agent.poll(0).await;
    assert!(agent.desired.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_an_allocation_ends_with_its_node() {
    let mut fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    for id in ["alc_1", "alc_2"] {
        fixture.scheduler.publish(&allocation(id, "n1"));
    }
    agent.wait_for_container_count(2).await;
    let running = ["alc_1", "alc_2"].map(|id| container_report(id, ContainerState::Running));
    agent.report(running.to_vec()).await;
    fixture
        .wait_for_state("alc_2", ContainerState::Running)
        .await;
    // alc_1 is withdrawn while the node is unreachable. Its allocation is removed before the node
    // is lost.
    fixture.scheduler.remove("alc_1");
    fixture
        .wait_for_state("alc_1", ContainerState::Stopping)
        .await;
    fixture.restart().await;
    fixture.scheduler.declare_node_lost("n1");
    fixture
        .wait_until("the one without an allocation is archived", |all| {
            !all.contains_key("alc_1") && all.contains_key("alc_2")
        })
        .await;
    let view = fixture.show_container("ann", "alc_1").await.unwrap();
    assert_eq!(view.entry.exit.unwrap().cause, ExitCause::Node);
    fixture
        .wait_for_state("alc_2", ContainerState::Running)
        .await;
    // For alc_2 the order is reversed: the node was lost before the allocation is removed.
    fixture.scheduler.remove("alc_2");
    fixture
        .wait_until("all containers are archived", BTreeMap::is_empty)
        .await;
    // The node returns, and its desired set is empty.
    let mut returned_agent = FakeAgent::new(&fixture, "n1");
    returned_agent.instance = "second".into();
    returned_agent
        .wait_until("the desired set is empty", BTreeMap::is_empty)
        .await;
    returned_agent.report(running.to_vec()).await;
    assert!(fixture.published_containers().await.is_empty());
}

/// The start state is one container `alc_1` of a service, which runs on `n1`.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_end_shows_why() {
    let (mut fixture, mut agent) = running_service().await;
    fixture.scheduler.vacate("alc_1", false);
    agent.wait_for_stop_order("alc_1").await;
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
    agent.report_state("alc_1", ContainerState::Ended).await;
    let ended = fixture.wait_for_state("alc_1", ContainerState::Ended).await;
    assert_eq!(ended.reason, None);
}
