//! Tests of the life cycle of allocations: from the grant over the reported states to the removal.

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::views::RoundList;
use hayward_rm_scheduler_api::{AllocationState, VacateReason, WaitReason};
use hayward_service::health::Status;
use hayward_testkit::until;
use hayward_vocabulary::ExitCause;
use hayward_vocabulary::resources::GIB;

use super::fixture::{Fixture, allocations_of, is_staying};
use super::neighbours::{job, reservation};

#[tokio::test(flavor = "multi_thread")]
async fn no_round_is_taken_before_every_neighbour_has_answered() {
    let mut fixture = Fixture::not_started(&[4]).await;
    fixture.neighbours.containers.set_responding(false);
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.start().await;
    let operator = fixture.client("operator");
    until("answers of all other neighbours", async || {
        let status: Status = operator.get("/v1/status").await.unwrap();
        let answered = status
            .followers
            .iter()
            .filter(|follower| follower.lag_ms.is_some());
        let faulty = status
            .followers
            .iter()
            .any(|follower| follower.fault.is_some());
        // There are five publications of neighbours, and that of the containers does not respond.
        (answered.count() == 4 && faulty).then_some(())
    })
    .await;
    assert_eq!(fixture.allocations().await.len(), 0);
    assert_eq!(fixture.shares().await, None);

    fixture.neighbours.containers.set_responding(true);
    fixture
        .until("four processes", |all| {
            allocations_of(all, "job_a").len() == 4
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_allocation_is_removed_when_it_is_settled() {
    let fixture = Fixture::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 2;
    fixture.neighbours.submit(&demand);
    let all = fixture.until("two processes", |all| all.len() == 2).await;
    let first = allocations_of(&all, "job_a")
        .into_iter()
        .min_by_key(|entry| entry.incarnation)
        .unwrap();
    assert_eq!(first.state, AllocationState::Assigned);
    let facts = (first.class.as_str(), first.order, first.incarnation);
    assert_eq!(facts, ("normal", 1, 1));
    assert_eq!(first.size.memory_bytes, GIB);
    assert_eq!(first.launch, demand.launch);
    let verdict = fixture.until_verdict("job_a", WaitReason::Satisfied).await;
    assert_eq!(verdict.class.as_deref(), Some("normal"));

    for (reported, state) in [
        (ContainerState::Launching, AllocationState::Launching),
        (ContainerState::Running, AllocationState::Running),
    ] {
        fixture.report(&first, reported);
        fixture
            .until_one("job_a", "has the reported state", |entry| {
                entry.id == first.id && entry.state == state
            })
            .await;
    }
    fixture.report(&first, ContainerState::Ended);
    let ended = |all: &super::fixture::Allocations| {
        all.get(first.id.as_str())
            .is_some_and(|entry| entry.state == AllocationState::Ended)
    };
    let all = fixture
        .until("a successor", |all| ended(all) && all.len() == 3)
        .await;
    assert_eq!(
        all[first.id.as_str()].exit.as_ref().unwrap().cause,
        ExitCause::Intended
    );
    let of_job = allocations_of(&all, "job_a");
    let newest = of_job.iter().map(|entry| entry.incarnation).max();
    assert_eq!(newest, Some(3));
    // A late report of an earlier state changes nothing.
    fixture.report(&first, ContainerState::Running);
    fixture.settle().await;
    assert!(ended(&fixture.allocations().await));

    demand.settled.insert(first.id.clone());
    fixture.neighbours.submit(&demand);
    let all = fixture
        .until("the removal of the allocation", |all| {
            !all.contains_key(first.id.as_str())
        })
        .await;
    assert_eq!(all.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_work_leaves_and_is_removed() {
    let fixture = Fixture::new(&[4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let held = fixture.until_one("job_a", "is there", |_| true).await;
    fixture.report(&held, ContainerState::Running);
    fixture.until_verdict("job_a", WaitReason::Satisfied).await;
    fixture.neighbours.demand.remove("job_a");
    let leaving = fixture
        .until_one("job_a", "is vacated", |entry| entry.vacate.is_some())
        .await;
    let vacate = leaving.vacate.as_ref().unwrap();
    assert_eq!(
        (vacate.reason, vacate.purge),
        (VacateReason::WorkGone, false)
    );
    assert!(!fixture.verdicts().await.contains_key("job_a"));

    fixture.report(&held, ContainerState::Stopping);
    fixture
        .until_one("job_a", "stops", |entry| {
            entry.state == AllocationState::Stopping
        })
        .await;
    fixture.report(&held, ContainerState::Ended);
    fixture
        .until(
            "the removal of the allocation",
            std::collections::BTreeMap::is_empty,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_is_running_at_once_and_ends_at_once() {
    let fixture = Fixture::new(&[4, 8]).await;
    fixture.neighbours.submit(&reservation("rsv_a", "ann", 6));
    let held = fixture.until_one("rsv_a", "is there", |_| true).await;
    assert_eq!((held.state, held.order), (AllocationState::Running, 8));
    assert_eq!((held.node.as_str(), held.launch), ("n2", None));
    fixture.neighbours.demand.remove("rsv_a");
    fixture
        .until("the node to be free", std::collections::BTreeMap::is_empty)
        .await;
    // Readers see the numbers of the next round.
    until("the room to be counted as free", async || {
        let shares = fixture.shares().await?;
        ((shares.held, shares.free, shares.capacity) == (0, 12, 12)).then_some(())
    })
    .await;
}

/// The limits of growth apply to the entitlement, and not to lent space (TC-10).
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_unknown_pace_fills_the_free_space_in_one_round() {
    let fixture = Fixture::new(&[100, 100]).await;
    let mut demand = job("job_a", "ann");
    demand.task_ms = None;
    fixture.neighbours.submit(&demand);
    let all = fixture.until("all space", |all| all.len() == 200).await;
    assert!(all.values().all(is_staying));
    fixture.settle().await;
    let list: RoundList = fixture.client("viewer").get("/v1/rounds").await.unwrap();
    let grants = list.rounds.iter().map(|round| round.grants.len());
    let grants: Vec<usize> = grants.filter(|grants| *grants > 0).collect();
    assert_eq!(grants, [200]);
    assert!(
        list.rounds
            .iter()
            .all(|round| round.refused.is_empty() && round.vacated.is_empty())
    );
}
