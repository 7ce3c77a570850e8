//! Ends of launched work of orchestrators.

use hayward_job_converter_api::orchestrators::Standing;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause};
use serde_json::{Value, json};

use super::world::{Orchestrator, job, processes, with};
use crate::world::World;

fn launched(entry: Value) -> Value {
    with(entry, json!({ "launch": { "command": ["false"] } }))
}

fn service() -> Value {
    json!({ "kind": "service", "state": "running", "owner": "ada" })
}

fn failed() -> Exit {
    Exit::of(ExitCause::UserError, "status 1")
}

async fn strikes(world: &World, wanted: i64) {
    until(&format!("{wanted} held back"), async || {
        let rows = world.rows("select count(*) from job_converter.brake").await;
        (rows == wanted).then_some(())
    })
    .await;
}

/// Rule of orchestrators.
#[tokio::test]
async fn a_launched_service_is_over_when_its_end_is_observed_first() {
    let mut world = World::mortal().await;
    let mut one = Orchestrator::new(&world, "one").await;
    one.put(&world, json!({ "s": launched(service()) })).await;
    let demand = one.demanded(&world, "s").await;
    world.running.take().unwrap().kill();
    let share = world.scheduler.grant(&demand);
    world.scheduler.ended(&share, failed());
    world.start().await;
    until("it to be over", async || {
        let standing = one.standing(&world, "s").await?;
        (standing.state == Standing::Over).then_some(())
    })
    .await;
    assert!(one.demand(&world, "s").await.is_none());
}

#[tokio::test]
async fn a_launched_process_ends_only_when_its_allocation_ends() {
    let world = World::new().await;
    let mut one = Orchestrator::new(&world, "one").await;
    one.put(&world, json!({ "a": launched(job()) })).await;
    let share = world.scheduler.grant(&one.demanded(&world, "a").await);
    one.has(&world, &share).await;
    for state in ["running", "stopped"] {
        let said = with(launched(job()), processes(&[(&share, state)]));
        one.put(&world, json!({ "a": said })).await;
        assert!(one.demanded(&world, "a").await.settled.is_empty());
        assert!(one.share(&world, &share.id).await.is_some(), "it runs");
    }
    let done = Exit::of(ExitCause::Success, "status 0");
    world.scheduler.ended(&share, done);
    let told = async || one.share(&world, &share.id).await?.exit;
    until("its end", told).await;
    // The same map again: shares it does not name as running are settled.
    let said = with(launched(job()), processes(&[(&share, "stopped")]));
    one.again(&world, json!({ "a": said })).await;
    let settled = one.demanded(&world, "a").await.settled;
    assert_eq!(settled, [share.id].into());
}

/// Rule of orchestrators.
#[tokio::test]
async fn a_service_that_returns_its_share_continues_elsewhere() {
    let world = World::new().await;
    let mut one = Orchestrator::new(&world, "one").await;
    one.put(&world, json!({ "s": service() })).await;
    let share = world.scheduler.grant(&one.demanded(&world, "s").await);
    one.has(&world, &share).await;
    let says = |share: &AllocationEntry, state: &str| {
        let service = with(service(), processes(&[(share, state)]));
        json!({ "s": service })
    };
    one.put(&world, says(&share, "running")).await;
    world.scheduler.vacate(&share);
    let told = async || one.share(&world, &share.id).await?.vacate;
    until("the order", told).await;
    let answer = one.put(&world, says(&share, "stopped")).await;
    assert_eq!((answer.counts.vacated, answer.counts.completed), (1, 0));
    let demand = one.demanded(&world, "s").await;
    assert!(demand.max_processes == 1 && demand.settled.contains(&share.id));

    // The next process ends by itself, and the service with it.
    let next = world.scheduler.grant_on(&demand, "node-2");
    one.has(&world, &next).await;
    one.put(&world, says(&next, "running")).await;
    let answer = one.put(&world, says(&next, "failed")).await;
    assert_eq!(answer.counts.completed, 1);
}

#[tokio::test]
async fn a_job_stays_held_back_over_a_restart_until_it_makes_progress() {
    let mut world = World::mortal().await;
    let mut one = Orchestrator::new(&world, "one").await;
    one.put(&world, json!({ "a": launched(job()) })).await;
    let demand = one.demanded(&world, "a").await;
    let share = world.scheduler.grant(&demand);
    one.has(&world, &share).await;
    let done = Exit::of(ExitCause::Success, "status 0");
    world.scheduler.ended(&share, done);
    let told = async || one.share(&world, &share.id).await?.exit;
    until("its end", told).await;
    strikes(&world, 0).await;

    let share = world.scheduler.grant(&demand);
    one.has(&world, &share).await;
    world.scheduler.ended(&share, failed());
    strikes(&world, 1).await;
    world.kill_and_restart().await;
    one.has(&world, &share).await;
    let count = "select coalesce(sum(strikes), 0) from job_converter.brake";
    assert_eq!(world.rows(count).await, 1, "counted once");
    let further = with(launched(job()), json!({ "items_done": 1 }));
    one.put(&world, json!({ "a": further })).await;
    strikes(&world, 0).await;
    assert_eq!(one.demanded(&world, "a").await.max_processes, 3);
}
