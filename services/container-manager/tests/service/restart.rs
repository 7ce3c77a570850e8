//! The manager is killed in the middle of things.

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::Code;
use hayward_testkit::{TestServer, until};
use hayward_vocabulary::{Exit, ExitCause};

use super::agent::{Agent, seen};
use super::upstream::allocation;
use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_no_agent_is_woken_for_nothing() {
    let mut world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    for id in ["alc_1", "alc_2", "alc_3"] {
        world.upstream.put(&allocation(id, "n1"));
    }
    agent.until("three", |desired| desired.len() == 3).await;
    let epoch = agent.desired["alc_1"].epoch;
    let late = agent.next(vec![]);
    agent
        .report(
            ["alc_1", "alc_2"]
                .map(|id| seen(id, ContainerState::Running))
                .into(),
        )
        .await;
    let before = world.published().await;

    // While nobody is there: one allocation has to go, one is buried above.
    world.kill();
    world.upstream.vacate("alc_2", false);
    world.upstream.remove("alc_3");
    world.start().await;
    let mut agent = agent.at(&world);
    assert_eq!(
        world.show("operator", "alc_1").await.unwrap().entry,
        before["alc_1"]
    );
    // The new manager knows no sequence numbers, and yet an old report proves nothing.
    agent.send(&late).await.unwrap();
    world.until_state("alc_2", ContainerState::Stopping).await;
    world.until_state("alc_3", ContainerState::Stopping).await;
    assert_eq!(world.published().await["alc_1"], before["alc_1"]);

    agent
        .until("stops", |all| {
            all["alc_2"].goal == Goal::Stop && all["alc_3"].goal == Goal::Stop
        })
        .await;
    assert_eq!(
        agent.desired["alc_1"].epoch, epoch,
        "an order that did not change keeps its epoch"
    );
    assert!(agent.desired["alc_2"].epoch > epoch);

    // The agent was restarted too; its journal has alc_1 and alc_2, and alc_3 was never started.
    let mut agent = agent.restarted("second");
    agent
        .until("three again", |desired| desired.len() == 3)
        .await;
    let running = seen("alc_1", ContainerState::Running);
    agent
        .report(vec![running, seen("alc_2", ContainerState::Ended)])
        .await;
    let all = world
        .until("alc_3 buried", |all| !all.contains_key("alc_3"))
        .await;
    assert_eq!(all["alc_1"], before["alc_1"]);
    assert_eq!(
        all["alc_2"].exit.as_ref().unwrap().cause,
        ExitCause::Intended
    );

    // An end that was acknowledged is there after the next kill, and buried as usual.
    world.restart().await;
    assert_eq!(world.published().await["alc_2"], all["alc_2"]);
    world.upstream.remove("alc_2");
    world
        .until("alc_2 buried", |all| !all.contains_key("alc_2"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_manager_stands_by_and_says_so() {
    let world = World::new().await;
    world.upstream.put(&allocation("alc_1", "n1"));
    world.until_state("alc_1", ContainerState::Ordered).await;
    let second = world.beside().await;
    let refused = second
        .get::<serde_json::Value>("/v1/containers")
        .await
        .unwrap_err();
    assert_eq!(refused.problem().unwrap().code, Code::Standby);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_database_costs_a_pause_and_no_fact() {
    let server = TestServer::start().await;
    let world = World::on(&server).await;
    let mut agent = Agent::of(&world, "n1");
    world.upstream.put(&allocation("alc_1", "n1"));
    agent
        .until("alc_1", |desired| desired.contains_key("alc_1"))
        .await;
    agent
        .report(vec![seen("alc_1", ContainerState::Running)])
        .await;
    let known = world.until_state("alc_1", ContainerState::Running).await;

    server.kill().await;
    let report = agent.next(vec![seen("alc_1", ContainerState::Ended)]);
    let refused = agent.send(&report).await.unwrap_err();
    assert!(refused.problem().unwrap().retryable, "{refused:?}");
    world.upstream.put(&allocation("alc_2", "n1"));
    server.resume().await;

    // The same report again, as an agent does until it is taken.
    until("the report is taken", async || {
        agent.send(&report).await.ok()
    })
    .await;
    let ended = world.until_state("alc_1", ContainerState::Ended).await;
    assert_eq!(
        (ended.work, ended.exit.unwrap().code),
        (known.work, Some(3))
    );
    world.until_state("alc_2", ContainerState::Ordered).await;
}

/// I4: that it is exclusive survives the manager, and its end by the lease is the node's doing.
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_stays_exclusive_and_its_end_by_the_lease_is_no_fault_of_its_user() {
    let mut world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    world.upstream.put(&AllocationEntry {
        exclusive: true,
        ..allocation("alc_1", "n1")
    });
    world.upstream.put(&allocation("alc_2", "n1"));
    agent.until("two", |desired| desired.len() == 2).await;
    world.kill();
    world.start().await;
    let mut agent = agent.at(&world).restarted("second");
    agent.until("two again", |desired| desired.len() == 2).await;
    assert!(agent.desired["alc_1"].exclusive && !agent.desired["alc_2"].exclusive);

    // It was told to stop meanwhile, and the node knows: still it was the lease that ended it.
    agent
        .report(vec![seen("alc_1", ContainerState::Running)])
        .await;
    world.upstream.vacate("alc_1", false);
    agent
        .until("the stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    let mut ended = seen("alc_1", ContainerState::Ended);
    ended.exit = Some(Exit::of(ExitCause::Node, "the lease of its node ran out"));
    agent.report(vec![ended]).await;
    let ended = world.until_state("alc_1", ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Node);
}
