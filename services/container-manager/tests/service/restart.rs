//! Restarts of container-manager and of the database, and a second replica.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::Code;
use hayward_testkit::{TestServer, until};
use hayward_vocabulary::{Exit, ExitCause};

use super::fake_agent::{FakeAgent, container_report};
use super::fake_scheduler::allocation;
use super::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_nothing_and_changes_no_unaffected_order() {
    let mut fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    for id in ["alc_1", "alc_2", "alc_3"] {
        fixture.scheduler.publish(&allocation(id, "n1"));
    }
    agent.wait_for_container_count(3).await;
    let epoch = agent.desired["alc_1"].epoch;
    let late = agent.next_report(vec![]);
    agent
        .report(
            ["alc_1", "alc_2"]
                .map(|id| container_report(id, ContainerState::Running))
                .into(),
        )
        .await;
    let before = fixture.published_containers().await;

    // One allocation is vacated and one is removed while container-manager is down.
    fixture.kill();
    fixture.scheduler.vacate("alc_2", false);
    fixture.scheduler.remove("alc_3");
    fixture.start().await;
    let mut agent = agent.reconnect(&fixture);
    let unaffected = fixture.show_container("operator", "alc_1").await.unwrap();
    assert_eq!(unaffected.entry, before["alc_1"]);
    // The restarted container-manager has no report filter. An old report still has no effect.
    agent.send(&late).await.unwrap();
    fixture
        .wait_for_state("alc_2", ContainerState::Stopping)
        .await;
    fixture
        .wait_for_state("alc_3", ContainerState::Stopping)
        .await;
    assert_eq!(
        fixture.published_containers().await["alc_1"],
        before["alc_1"]
    );

    agent
        .wait_until("the stops are ordered", |all| {
            all["alc_2"].goal == Goal::Stop && all["alc_3"].goal == Goal::Stop
        })
        .await;
    assert_eq!(
        agent.desired["alc_1"].epoch, epoch,
        "the epoch of an unchanged order stays the same"
    );
    assert!(agent.desired["alc_2"].epoch > epoch);

    // The agent was restarted too; its journal has alc_1 and alc_2, and alc_3 was never started.
    let mut agent = agent.restart("second");
    agent.wait_for_container_count(3).await;
    let running = container_report("alc_1", ContainerState::Running);
    agent
        .report(vec![
            running,
            container_report("alc_2", ContainerState::Ended),
        ])
        .await;
    let all = fixture
        .wait_until("alc_3 is archived", |all| !all.contains_key("alc_3"))
        .await;
    assert_eq!(all["alc_1"], before["alc_1"]);
    assert_eq!(
        all["alc_2"].exit.as_ref().unwrap().cause,
        ExitCause::Intended
    );

    // An acknowledged end survives the next kill, and the container is archived as usual.
    fixture.restart().await;
    assert_eq!(fixture.published_containers().await["alc_2"], all["alc_2"]);
    fixture.scheduler.remove("alc_2");
    fixture
        .wait_until("alc_2 is archived", |all| !all.contains_key("alc_2"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_responds_with_standby() {
    let fixture = Fixture::new().await;
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    fixture
        .wait_for_state("alc_1", ContainerState::Ordered)
        .await;
    let second = fixture.standby_client().await;
    let refused = second
        .get::<serde_json::Value>("/v1/containers")
        .await
        .unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Standby);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_crash_loses_no_report() {
    let server = TestServer::start().await;
    let fixture = Fixture::with_server(&server).await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&allocation("alc_1", "n1"));
    agent.wait_for_container("alc_1").await;
    agent.report_state("alc_1", ContainerState::Running).await;
    let running = fixture
        .wait_for_state("alc_1", ContainerState::Running)
        .await;

    server.kill().await;
    let report = agent.next_report(vec![container_report("alc_1", ContainerState::Ended)]);
    let refused = agent.send(&report).await.unwrap_err();
    assert!(refused.problem().unwrap().retryable, "{refused:?}");
    fixture.scheduler.publish(&allocation("alc_2", "n1"));
    server.resume().await;

    // An agent repeats its report until it is accepted.
    until("the report is accepted", async || {
        agent.send(&report).await.ok()
    })
    .await;
    let ended = fixture.wait_for_state("alc_1", ContainerState::Ended).await;
    assert_eq!(
        (ended.work, ended.exit.unwrap().code),
        (running.work, Some(3))
    );
    fixture
        .wait_for_state("alc_2", ContainerState::Ordered)
        .await;
}

/// The flag `exclusive` survives a restart of container-manager (I4).
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_work_ended_by_the_lease_is_attributed_to_the_node() {
    let mut fixture = Fixture::new().await;
    let mut agent = FakeAgent::new(&fixture, "n1");
    fixture.scheduler.publish(&AllocationEntry {
        exclusive: true,
        ..allocation("alc_1", "n1")
    });
    fixture.scheduler.publish(&allocation("alc_2", "n1"));
    agent.wait_for_container_count(2).await;
    fixture.kill();
    fixture.start().await;
    let mut agent = agent.reconnect(&fixture).restart("second");
    agent.wait_for_container_count(2).await;
    assert!(agent.desired["alc_1"].exclusive && !agent.desired["alc_2"].exclusive);

    // The node had seen the stop, but the expired lease ended the container.
    agent.report_state("alc_1", ContainerState::Running).await;
    fixture.scheduler.vacate("alc_1", false);
    agent.wait_for_stop_order("alc_1").await;
    let mut ended = container_report("alc_1", ContainerState::Ended);
    ended.exit = Some(Exit::of(
        ExitCause::Node,
        "the lease of its node has expired",
    ));
    agent.report(vec![ended]).await;
    let ended = fixture.wait_for_state("alc_1", ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Node);
}
