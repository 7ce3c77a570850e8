//! From the order to the burial, and everything that can happen on the way.

use std::collections::BTreeMap;

use hayward_container_manager_api::{ContainerState, Goal};
use hayward_vocabulary::ExitCause;

use super::agent::{Agent, seen};
use super::upstream::allocation;
use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_lives_and_is_buried_with_repeats_and_late_reports() {
    let world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    world.upstream.put(&allocation("alc_1", "n1"));
    agent
        .until("alc_1", |desired| desired.contains_key("alc_1"))
        .await;
    let order = &agent.desired["alc_1"];
    assert_eq!((order.goal, order.incarnation), (Goal::Run, 1));
    assert_eq!(order.launch.environment["SECRET"], "hush");
    world.until_state("alc_1", ContainerState::Ordered).await;

    // Not there yet: a complete and empty report is no loss.
    agent.report(vec![]).await;
    world.until_state("alc_1", ContainerState::Ordered).await;

    let early = agent.next(vec![]);
    let launching = agent.next(vec![seen("alc_1", ContainerState::Launching)]);
    let running = agent.next(vec![seen("alc_1", ContainerState::Running)]);
    agent.send(&launching).await.unwrap();
    world.until_state("alc_1", ContainerState::Launching).await;
    agent.send(&running).await.unwrap();
    let known = world.until_state("alc_1", ContainerState::Running).await;

    // Late, repeated, from a predecessor, incomplete, or answering nothing: all without effect.
    let quiet = world.revision();
    for late in [&early, &launching, &running, &running] {
        agent.send(late).await.unwrap();
    }
    let mut predecessor = Agent::of(&world, "n1");
    predecessor.instance = "zeroth".into();
    predecessor.cursor.clone_from(&agent.cursor);
    predecessor.report(vec![]).await;
    let mut incomplete = agent.next(vec![]);
    incomplete.complete = false;
    agent.send(&incomplete).await.unwrap();
    let mut blind = agent.next(vec![]);
    blind.cursor = None;
    agent.send(&blind).await.unwrap();
    assert_eq!(
        world.revision(),
        quiet,
        "a report that changes nothing commits nothing"
    );

    agent.poll(0).await;
    agent
        .report(vec![seen("alc_1", ContainerState::Ended)])
        .await;
    let ended = world.until_state("alc_1", ContainerState::Ended).await;
    let exit = ended.exit.clone().unwrap();
    assert_eq!((exit.cause, exit.code), (ExitCause::UserError, Some(3)));
    agent.send(&running).await.unwrap();
    assert_eq!(world.published().await["alc_1"], ended);
    assert_ne!(known, ended);
    agent.until("nothing", BTreeMap::is_empty).await;

    // It stays published until its allocation is gone, and readable after that.
    world.upstream.remove("alc_1");
    world.until("buried", BTreeMap::is_empty).await;
    let view = world.show("ann", "alc_1").await.unwrap();
    assert_eq!(view.entry, ended);
    let after = world.revision();
    agent
        .report(vec![seen("alc_1", ContainerState::Running)])
        .await;
    assert_eq!(world.revision(), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_a_container_says_so_only_by_a_later_report() {
    let world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    world.upstream.put(&allocation("alc_1", "n1"));
    agent
        .until("alc_1", |desired| desired.contains_key("alc_1"))
        .await;
    let revision = agent
        .report(vec![seen("alc_1", ContainerState::Running)])
        .await;
    // Composed before the node could know that we know it runs.
    agent.report(vec![]).await;
    world.until_state("alc_1", ContainerState::Running).await;
    agent.poll(0).await;
    assert!(
        agent
            .cursor
            .clone()
            .unwrap()
            .ends_with(&format!("-{revision}"))
    );
    agent.report(vec![]).await;
    let lost = world.until_state("alc_1", ContainerState::Ended).await;
    assert_eq!(lost.exit.unwrap().cause, ExitCause::Node);
    agent
        .until("nothing to run again", BTreeMap::is_empty)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_to_leave_is_stopped_and_its_exit_is_intended() {
    let world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    for id in ["alc_1", "alc_2", "alc_3"] {
        world.upstream.put(&allocation(id, "n1"));
    }
    agent.until("three", |desired| desired.len() == 3).await;
    let before = agent.cursor.clone();
    agent
        .report(
            ["alc_1", "alc_2"]
                .map(|id| seen(id, ContainerState::Running))
                .into(),
        )
        .await;
    for id in ["alc_1", "alc_2", "alc_3"] {
        world.upstream.vacate(id, false);
    }
    agent
        .until("stops", |all| {
            all.values().all(|entry| entry.goal == Goal::Stop)
        })
        .await;
    world.until_state("alc_3", ContainerState::Stopping).await;
    // alc_2 ended before the agent had heard of the stop; that report arrives now.
    let told = std::mem::replace(&mut agent.cursor, before);
    let running = seen("alc_1", ContainerState::Running);
    agent
        .report(vec![running, seen("alc_2", ContainerState::Ended)])
        .await;
    let by_itself = world.until_state("alc_2", ContainerState::Ended).await;
    assert_eq!(by_itself.exit.unwrap().cause, ExitCause::UserError);
    world.until_state("alc_1", ContainerState::Stopping).await;
    // The agent obeys: alc_1 was ended, alc_3 never started.
    agent.cursor = told;
    agent
        .report(vec![seen("alc_1", ContainerState::Ended)])
        .await;
    for id in ["alc_1", "alc_3"] {
        let ended = world.until_state(id, ContainerState::Ended).await;
        assert_eq!(ended.exit.unwrap().cause, ExitCause::Intended, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_container_is_over_without_its_node() {
    let world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    world.upstream.put(&allocation("alc_1", "n1"));
    agent
        .until("alc_1", |desired| desired.contains_key("alc_1"))
        .await;
    agent
        .report(vec![seen("alc_1", ContainerState::Running)])
        .await;
    world.upstream.vacate("alc_1", true);
    let ended = world.until_state("alc_1", ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Node);
    agent.until("nothing", BTreeMap::is_empty).await;
    // The node comes back and tells of an end nobody waits for any more.
    agent
        .report(vec![seen("alc_1", ContainerState::Ended)])
        .await;
    assert_eq!(
        world.published().await["alc_1"]
            .exit
            .as_ref()
            .unwrap()
            .cause,
        ExitCause::Node
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_that_goes_too_early_is_stopped_first() {
    let world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    world.upstream.put(&allocation("alc_1", "n1"));
    agent
        .until("alc_1", |desired| desired.contains_key("alc_1"))
        .await;
    agent
        .report(vec![seen("alc_1", ContainerState::Running)])
        .await;
    world.upstream.remove("alc_1");
    agent
        .until("stop", |all| all["alc_1"].goal == Goal::Stop)
        .await;
    agent
        .report(vec![seen("alc_1", ContainerState::Ended)])
        .await;
    world.until("buried", BTreeMap::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservations_have_no_container_and_what_left_at_once_never_started() {
    let world = World::new().await;
    let mut reservation = allocation("alc_1", "n1");
    reservation.launch = None;
    let mut left = allocation("alc_2", "n1");
    world.upstream.put(&allocation("alc_3", "n2"));
    world.until_state("alc_3", ContainerState::Ordered).await;
    left.vacate = Some(hayward_rm_scheduler_api::Vacate {
        reason: hayward_rm_scheduler_api::VacateReason::WorkGone,
        detail: String::new(),
        since: left.granted_at,
        purge: false,
    });
    world.upstream.put(&reservation);
    world.upstream.put(&left);
    let ended = world.until_state("alc_2", ContainerState::Ended).await;
    assert_eq!(ended.exit.unwrap().cause, ExitCause::Intended);
    assert!(!world.published().await.contains_key("alc_1"));
    let mut agent = Agent::of(&world, "n1");
    agent.poll(0).await;
    assert!(agent.desired.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_has_an_allocation_for_ends_with_its_node() {
    let mut world = World::new().await;
    let mut agent = Agent::of(&world, "n1");
    for id in ["alc_1", "alc_2"] {
        world.upstream.put(&allocation(id, "n1"));
    }
    agent.until("both", |desired| desired.len() == 2).await;
    let running = ["alc_1", "alc_2"].map(|id| seen(id, ContainerState::Running));
    agent.report(running.to_vec()).await;
    world.until_state("alc_2", ContainerState::Running).await;
    // Withdrawn while the node is silent, and buried above before anything was heard of the node.
    world.upstream.remove("alc_1");
    world.until_state("alc_1", ContainerState::Stopping).await;
    world.restart().await;
    world.upstream.lose("n1");
    world
        .until("the one without an allocation buried", |all| {
            !all.contains_key("alc_1") && all.contains_key("alc_2")
        })
        .await;
    let view = world.show("ann", "alc_1").await.unwrap();
    assert_eq!(view.entry.exit.unwrap().cause, ExitCause::Node);
    world.until_state("alc_2", ContainerState::Running).await;
    // The other order: known as lost before the allocation goes.
    world.upstream.remove("alc_2");
    world.until("nothing left", BTreeMap::is_empty).await;
    // It is back, and is told to run nothing of it.
    let mut back = Agent::of(&world, "n1");
    back.instance = "second".into();
    back.until("nothing to run", BTreeMap::is_empty).await;
    back.report(running.to_vec()).await;
    assert!(world.published().await.is_empty());
}
