//! Tests of allocations of an orchestrator that starts its own processes. In its map the
//! orchestrator reports which of them run and which have ended.

use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason, WaitReason};
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Orchestrated};

use super::fixture::{Allocations, Fixture, allocations_of, is_staying};
use super::neighbours::{job, service};

/// Returns a job of an orchestrator that starts its processes itself.
fn mapped_job(work: &str, user: &str, processes: u64) -> DemandEntry {
    DemandEntry {
        max_processes: processes,
        launch: None,
        orchestrated: Some(Box::new(Orchestrated {
            orchestrator: "one".to_owned(),
            own_processes: true,
            ..Orchestrated::default()
        })),
        ..job(work, user)
    }
}

/// Returns the demand with the next map, which lists these processes as running and as ended.
fn with_map(
    demand: &DemandEntry,
    running: &[&AllocationEntry],
    settled: &[&AllocationEntry],
) -> DemandEntry {
    let ids = |all: &[&AllocationEntry]| all.iter().map(|it| it.id.clone()).collect();
    let mut demand = demand.clone();
    if let Some(orchestrated) = &mut demand.orchestrated {
        orchestrated.running = ids(running);
    }
    DemandEntry {
        settled: ids(settled),
        ..demand
    }
}

async fn until_state(
    fixture: &Fixture,
    id: &AllocationId,
    state: AllocationState,
) -> AllocationEntry {
    let what = format!("{id} to be {state:?}");
    let reached = |all: &Allocations| all.get(id.as_str()).is_some_and(|it| it.state == state);
    fixture.until(&what, reached).await[id.as_str()].clone()
}

fn leaving_allocations(all: &Allocations, work: &str) -> Vec<AllocationEntry> {
    let all = allocations_of(all, work).into_iter();
    all.filter(|it| it.vacate.is_some()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_keeps_its_space_until_its_orchestrator_reports_the_end() {
    let mut fixture = Fixture::new(&[4]).await;
    let ann = mapped_job("job_a", "ann", 4);
    fixture.neighbours.submit(&ann);
    let all = fixture.until("four grants", |all| all.len() == 4).await;
    let four = allocations_of(&all, "job_a");
    assert!(
        four.iter()
            .all(|it| it.state == AllocationState::Assigned && it.launch.is_none())
    );
    let running: Vec<&AllocationEntry> = four.iter().collect();
    fixture.neighbours.submit(&with_map(&ann, &running, &[]));
    for allocation in &four {
        let running = until_state(&fixture, &allocation.id, AllocationState::Running).await;
        assert!(running.running_since.is_some());
    }

    // Another user is entitled to half of the node. Two processes leave, and still hold their
    // space.
    fixture.neighbours.submit(&mapped_job("job_b", "ben", 4));
    let two_leave = |all: &Allocations| leaving_allocations(all, "job_a").len() == 2;
    let all = fixture.until("two to leave", two_leave).await;
    let leave = leaving_allocations(&all, "job_a");
    fixture
        .until_verdict("job_b", WaitReason::WaitingForPreemption)
        .await;
    let all = fixture.allocations().await;
    assert!(allocations_of(&all, "job_b").is_empty());
    for allocation in &leave {
        let current = &all[allocation.id.as_str()];
        assert_eq!(current.state, AllocationState::Stopping);
        assert_eq!(
            current.vacate.as_ref().unwrap().reason,
            VacateReason::Preempted
        );
    }
    // A restart of the scheduler does not change that.
    fixture.restart().await;
    assert_eq!(
        allocations_of(&fixture.allocations().await, "job_a").len(),
        4
    );

    // The map reports the end of one process. Only the space of this process goes to the waiting
    // work.
    let left: Vec<&AllocationEntry> = four.iter().filter(|it| it.id != leave[0].id).collect();
    let map = with_map(&ann, &left, &[&leave[0]]);
    fixture.neighbours.submit(&map);
    let ben_has_one = |all: &Allocations| allocations_of(all, "job_b").len() == 1;
    let all = fixture.until("an allocation for ben", ben_has_one).await;
    assert!(!all.contains_key(leave[0].id.as_str()), "removed");
    assert_eq!(all[leave[1].id.as_str()].state, AllocationState::Stopping);

    // When the work is withdrawn, all its allocations end.
    fixture.neighbours.demand.remove("job_a");
    let is_empty = |all: &Allocations| allocations_of(all, "job_a").is_empty();
    fixture.until("no allocation of ann", is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_released_by_its_orchestrator_has_ended() {
    let fixture = Fixture::new(&[2]).await;
    let demand = mapped_job("job_a", "ann", 2);
    fixture.neighbours.submit(&demand);
    let all = fixture.until("two grants", |all| all.len() == 2).await;
    let [released, running] =
        <[AllocationEntry; 2]>::try_from(allocations_of(&all, "job_a")).unwrap();
    // A map cannot end allocations of other work.
    let mut other = mapped_job("job_b", "ben", 0);
    other.settled.insert(running.id.clone());
    fixture.neighbours.submit(&other);
    fixture
        .neighbours
        .submit(&with_map(&demand, &[&running], &[]));
    until_state(&fixture, &running.id, AllocationState::Running).await;
    fixture
        .neighbours
        .submit(&with_map(&demand, &[&running], &[&released]));
    let is_replaced = |all: &Allocations| all.len() == 2 && !all.contains_key(released.id.as_str());
    let all = fixture.until("the next one", is_replaced).await;
    assert_eq!(all[running.id.as_str()].state, AllocationState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completing_job_keeps_its_processes_and_gets_no_new_ones() {
    let fixture = Fixture::new(&[2, 2]).await;
    let demand = mapped_job("job_a", "ann", 2);
    fixture.neighbours.submit(&demand);
    let all = fixture.until("two grants", |all| all.len() == 2).await;
    let two = allocations_of(&all, "job_a");
    let mut completing_demand = with_map(&demand, &[&two[0]], &[&two[1]]);
    completing_demand.max_processes = 4;
    if let Some(orchestrated) = &mut completing_demand.orchestrated {
        orchestrated.completing = true;
    }
    fixture.neighbours.submit(&completing_demand);
    let gone = |all: &Allocations| !all.contains_key(two[1].id.as_str());
    fixture.until("one to go", gone).await;
    fixture.force_round().await;
    let all = fixture.allocations().await;
    assert_eq!(allocations_of(&all, "job_a").len(), 1);
    assert!(all[two[0].id.as_str()].vacate.is_none());
    let purged = all[two[0].id.as_str()].exit.as_ref().map(|exit| exit.cause);
    assert_eq!(purged, None::<ExitCause>);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_allocations_of_work_that_was_withdrawn_without_a_leader_end() {
    let mut fixture = Fixture::new(&[4]).await;
    fixture.neighbours.submit(&mapped_job("job_a", "ann", 4));
    fixture.until("four grants", |all| all.len() == 4).await;
    fixture.neighbours.submit(&mapped_job("job_b", "ben", 4));
    let any_vacated = |all: &Allocations| {
        allocations_of(all, "job_a")
            .iter()
            .any(|it| !is_staying(it))
    };
    fixture
        .until("a vacated process of job_a", any_vacated)
        .await;
    fixture.kill();
    fixture.neighbours.demand.remove("job_a");
    fixture.start().await;
    let all_for_ben = |all: &Allocations| {
        allocations_of(all, "job_a").is_empty() && allocations_of(all, "job_b").len() == 4
    };
    fixture
        .until("all space to be allocated to ben", all_for_ben)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_runs_once_is_not_run_again_before_its_end_is_settled() {
    let fixture = Fixture::new(&[4]).await;
    let demand = DemandEntry {
        orchestrated: Some(Box::new(Orchestrated {
            orchestrator: "one".to_owned(),
            managed: true,
            ..Orchestrated::default()
        })),
        ..service("svc_a", "ann")
    };
    fixture.neighbours.submit(&demand);
    let first = fixture.report_running("svc_a").await;
    fixture.end(&first, Exit::of(ExitCause::UserError, "status 1"));
    until_state(&fixture, &first.id, AllocationState::Ended).await;
    fixture.force_round().await;
    fixture.settle().await;
    assert_eq!(
        allocations_of(&fixture.allocations().await, "svc_a").len(),
        1
    );

    // After an end that is no fault of the work, another process follows at once.
    let mut settled = demand.clone();
    settled.settled.insert(first.id.clone());
    fixture.neighbours.submit(&settled);
    let second = fixture.report_running("svc_a").await;
    fixture.end(&second, Exit::of(ExitCause::Node, "lost"));
    let is_successor = |it: &AllocationEntry| it.id != second.id && is_staying(it);
    fixture
        .until_one("svc_a", "is there again", is_successor)
        .await;
}
