//! Shares of orchestrators that start their processes themselves (fair-share scheduling, 13.3).

use hayward_job_converter_api::DemandEntry;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason, WaitReason};
use hayward_vocabulary::{AllocationId, Exit, ExitCause, Orchestrated};

use super::neighbours::{job, service};
use super::world::{Allocations, World, of, stays};

fn asks(work: &str, user: &str, processes: u64) -> DemandEntry {
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

/// As the next map has it: what runs, and what is over.
fn tells(
    demand: &DemandEntry,
    runs: &[&AllocationEntry],
    over: &[&AllocationEntry],
) -> DemandEntry {
    let ids = |all: &[&AllocationEntry]| all.iter().map(|it| it.id.clone()).collect();
    let mut demand = demand.clone();
    if let Some(told) = &mut demand.orchestrated {
        told.running = ids(runs);
    }
    DemandEntry {
        settled: ids(over),
        ..demand
    }
}

async fn state(world: &World, id: &AllocationId, state: AllocationState) -> AllocationEntry {
    let what = format!("{id} to be {state:?}");
    let reached = |all: &Allocations| all.get(id.as_str()).is_some_and(|it| it.state == state);
    world.until(&what, reached).await[id.as_str()].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn r13_3_a_share_keeps_its_room_until_its_orchestrator_gives_it_back() {
    let mut world = World::new(&[4]).await;
    let ann = asks("job_a", "ann", 4);
    world.around.ask(&ann);
    let all = world.until("four shares", |all| all.len() == 4).await;
    let four = of(&all, "job_a");
    assert!(
        four.iter()
            .all(|it| it.state == AllocationState::Assigned && it.launch.is_none())
    );
    let running: Vec<&AllocationEntry> = four.iter().collect();
    world.around.ask(&tells(&ann, &running, &[]));
    for share in &four {
        let runs = state(&world, &share.id, AllocationState::Running).await;
        assert!(runs.running_since.is_some());
    }

    // Another user is due half of it: two are to go, and nobody has their room yet.
    world.around.ask(&asks("job_b", "ben", 4));
    let two_leave = |all: &Allocations| {
        of(all, "job_a")
            .iter()
            .filter(|it| it.vacate.is_some())
            .count()
            == 2
    };
    let all = world.until("two to be told", two_leave).await;
    let leave: Vec<AllocationEntry> = of(&all, "job_a")
        .into_iter()
        .filter(|it| !stays(it))
        .collect();
    world
        .until_verdict("job_b", WaitReason::WaitingForPreemption)
        .await;
    let all = world.allocations().await;
    assert!(of(&all, "job_b").is_empty());
    for share in &leave {
        let share = &all[share.id.as_str()];
        assert_eq!(share.state, AllocationState::Stopping);
        assert_eq!(
            share.vacate.as_ref().unwrap().reason,
            VacateReason::Preempted
        );
    }

    // A restart of the scheduler changes nothing of that.
    world.restart().await;
    assert_eq!(of(&world.allocations().await, "job_a").len(), 4);

    // The map gives one back: its room, and no other, goes to the one who waits.
    let left: Vec<&AllocationEntry> = four.iter().filter(|it| it.id != leave[0].id).collect();
    world.around.ask(&tells(&ann, &left, &[&leave[0]]));
    let all = world
        .until("a share for ben", |all| of(all, "job_b").len() == 1)
        .await;
    assert!(!all.contains_key(leave[0].id.as_str()), "it is buried");
    assert_eq!(all[leave[1].id.as_str()].state, AllocationState::Stopping);

    // Its work gone, everything of it is.
    world.around.demand.remove("job_a");
    let nothing = |all: &Allocations| of(all, "job_a").is_empty();
    world.until("nothing of ann's to be held", nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r7_6_a_share_that_is_given_back_unasked_has_ended() {
    let world = World::new(&[2]).await;
    let demand = asks("job_a", "ann", 2);
    world.around.ask(&demand);
    let all = world.until("two shares", |all| all.len() == 2).await;
    let [one, two] = <[AllocationEntry; 2]>::try_from(of(&all, "job_a")).unwrap();
    // What it says of others' shares means nothing.
    let mut other = asks("job_b", "ben", 0);
    other.settled.insert(two.id.clone());
    world.around.ask(&other);
    world.around.ask(&tells(&demand, &[&two], &[]));
    state(&world, &two.id, AllocationState::Running).await;
    world.around.ask(&tells(&demand, &[&two], &[&one]));
    let fresh = |all: &Allocations| all.len() == 2 && !all.contains_key(one.id.as_str());
    let all = world.until("the next one", fresh).await;
    assert_eq!(all[two.id.as_str()].state, AllocationState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn r7_7_a_completing_job_keeps_what_it_has_and_gets_nothing() {
    let world = World::new(&[2, 2]).await;
    let demand = asks("job_a", "ann", 2);
    world.around.ask(&demand);
    let all = world.until("two shares", |all| all.len() == 2).await;
    let two = of(&all, "job_a");
    let mut ending = tells(&demand, &[&two[0]], &[&two[1]]);
    ending.max_processes = 4;
    if let Some(told) = &mut ending.orchestrated {
        told.completing = true;
    }
    world.around.ask(&ending);
    let gone = |all: &Allocations| !all.contains_key(two[1].id.as_str());
    world.until("one to go", gone).await;
    world.round().await;
    let all = world.allocations().await;
    assert_eq!(of(&all, "job_a").len(), 1);
    assert!(all[two[0].id.as_str()].vacate.is_none());
    let purged = all[two[0].id.as_str()].exit.as_ref().map(|exit| exit.cause);
    assert_eq!(purged, None::<ExitCause>);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_waited_for_is_over_when_its_work_went_while_nobody_led() {
    let mut world = World::new(&[4]).await;
    world.around.ask(&asks("job_a", "ann", 4));
    world.until("four shares", |all| all.len() == 4).await;
    world.around.ask(&asks("job_b", "ben", 4));
    let told = |all: &Allocations| of(all, "job_a").iter().any(|it| !stays(it));
    world.until("some to be told", told).await;
    world.kill();
    world.around.demand.remove("job_a");
    world.start().await;
    let theirs = |all: &Allocations| of(all, "job_a").is_empty() && of(all, "job_b").len() == 4;
    world.until("all of the room to be ben's", theirs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r7_6_what_hayward_runs_once_is_not_run_again_before_its_end_is_noted() {
    let world = World::new(&[4]).await;
    let demand = DemandEntry {
        orchestrated: Some(Box::new(Orchestrated {
            orchestrator: "one".to_owned(),
            managed: true,
            ..Orchestrated::default()
        })),
        ..service("svc_a", "ann")
    };
    world.around.ask(&demand);
    let first = world.running("svc_a").await;
    world.end(&first, Exit::of(ExitCause::UserError, "status 1"));
    state(&world, &first.id, AllocationState::Ended).await;
    world.round().await;
    world.settled().await;
    assert_eq!(of(&world.allocations().await, "svc_a").len(), 1);

    // What was no end of its own is followed by another one at once.
    let mut noted = demand.clone();
    noted.settled.insert(first.id.clone());
    world.around.ask(&noted);
    let second = world.running("svc_a").await;
    world.end(&second, Exit::of(ExitCause::Node, "lost"));
    let again = |it: &AllocationEntry| it.id != second.id && stays(it);
    world.until_one("svc_a", "is there again", again).await;
}
