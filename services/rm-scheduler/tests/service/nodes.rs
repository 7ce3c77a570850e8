//! What becomes of allocations when their nodes fail, and when nobody says how nodes are.

use hayward_container_manager_api::ContainerState;
use hayward_node_status_api::Health;
use hayward_rm_scheduler_api::{AllocationState, ClosedEntry, VacateReason, WaitReason};
use hayward_vocabulary::ExitCause;

use super::neighbours::{job, node, service};
use super::world::{Allocations, World, of, stays};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_on_a_lost_node_has_ended_and_goes_on_elsewhere() {
    let world = World::new(&[2, 2]).await;
    world.around.ask(&service("svc_a.0", "ann"));
    let first = world.until_one("svc_a.0", "is there", |_| true).await;
    world.report(&first, ContainerState::Running);
    world
        .until_one("svc_a.0", "runs", |e| e.state == AllocationState::Running)
        .await;
    let mut lost = node(first.node.as_str(), 2);
    lost.health = Health::Lost;
    world.around.nodes.put(first.node.as_str(), &lost);
    let all = world.until("a successor", |all| all.len() == 2).await;
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

    // The node comes back and tells of its container: an end is an end (I6).
    world.around.node(first.node.as_str(), 2);
    world.report(&first, ContainerState::Running);
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(all[first.id.as_str()].state, AllocationState::Ended);
    assert_eq!(all.values().filter(|entry| stays(entry)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_node_keeps_what_it_has_and_gets_nothing_new() {
    let world = World::new(&[2]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    world.around.ask(&demand);
    world.until("one", |all| all.len() == 1).await;
    let mut suspect = node("n1", 2);
    suspect.health = Health::Suspect;
    world.around.nodes.put("n1", &suspect);
    world.settled().await;
    demand.max_processes = 2;
    world.around.ask(&demand);
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(all.len(), 1);
    assert!(all.values().all(stays));
    world.around.node("n1", 2);
    world.until("two", |all| all.len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_varied_off_is_left_by_jobs() {
    let world = World::new(&[2]).await;
    world.around.ask(&job("job_a", "ann"));
    world.until("both", |all| all.len() == 2).await;
    let mut off = node("n1", 2);
    off.schedulable = false;
    world.around.nodes.put("n1", &off);
    let all = world
        .until("all to go", |all| all.values().all(|entry| !stays(entry)))
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
async fn while_a_neighbour_is_silent_nothing_is_revoked_but_what_its_owner_gave_up() {
    let mut world = World::prepared(&[4, 4]).await;
    world.settings.stale_ms = 1_500;
    world.start().await;
    world.around.ask(&job("job_a", "ann"));
    world.until("all of it", |all| all.len() == 8).await;
    world.around.ask(&job("job_b", "bob"));
    world
        .until("two to go", |all| {
            all.values().filter(|e| !stays(e)).count() == 2
        })
        .await;
    world.around.containers.answer(false);
    world.until_verdict("job_b", WaitReason::StaleInput).await;

    let mut lost = node("n1", 4);
    lost.health = Health::Lost;
    world.around.nodes.put("n1", &lost);
    world.settled().await;
    let all = world.allocations().await;
    assert_eq!(all.len(), 8, "no successor runs beside what may still run");
    assert_eq!(all.values().filter(|entry| stays(entry)).count(), 6);
    assert!(
        all.values()
            .all(|entry| entry.state != AllocationState::Ended)
    );
    // A user's own word is known, not concluded.
    world.around.demand.remove("job_a");
    world
        .until("all to go", |all| {
            of(all, "job_a").iter().all(|entry| !stays(entry))
        })
        .await;

    world.around.containers.answer(true);
    world
        .until("the lost to end", |all| {
            !all.values().any(|entry| entry.node.as_str() == "n1")
        })
        .await;
}

/// Purge, end and burial are one commit here, so container-manager learns it from the node.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_is_named_while_containers_without_an_allocation_are_there() {
    for forgotten in [false, true] {
        let mut world = World::new(&[2, 2]).await;
        world.around.ask(&service("svc_a.0", "ann"));
        let held = world.running("svc_a.0").await;
        let name = held.node.as_str();
        world.around.demand.remove("svc_a.0");
        let told = |it: &hayward_rm_scheduler_api::AllocationEntry| it.vacate.is_some();
        world.until_one("svc_a.0", "is told to go", told).await;
        world.report(&held, ContainerState::Stopping);
        world.settled().await;
        assert!(world.entries::<ClosedEntry>("closed").await.is_empty());
        if forgotten {
            world.around.nodes.remove(name);
        } else {
            let mut lost = node(name, 2);
            lost.health = Health::Lost;
            world.around.nodes.put(name, &lost);
        }
        world.until("nothing left", Allocations::is_empty).await;
        let lost = |it: &ClosedEntry| it.lost && it.work.is_none();
        world.until_entry("closed", name, "is lost", lost).await;
        world.restart().await;
        world.settled().await;
        world.until_entry("closed", name, "is lost", lost).await;
        world.around.containers.remove(held.id.as_str());
        world.until_gone("closed", name).await;
    }
}

/// While its node answers, the node ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_answers_is_not_named_for_a_container_without_an_allocation() {
    let world = World::new(&[2]).await;
    let demand = service("svc_a.0", "ann");
    world.around.ask(&demand);
    let held = world.running("svc_a.0").await;
    let mut other = super::neighbours::container(&held, ContainerState::Running);
    other.id = "alc_of_later_rows".parse().unwrap();
    world.around.containers.put(other.id.as_str(), &other);
    world.settled().await;
    assert!(world.entries::<ClosedEntry>("closed").await.is_empty());
}
