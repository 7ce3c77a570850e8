//! Ends of launched work of orchestrators.

use hayward_job_converter_api::orchestrators::Standing;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause};
use serde_json::{Value, json};

use super::fixture::{Orchestrator, job, processes, with};
use crate::fixture::Fixture;

fn launched(entry: Value) -> Value {
    with(entry, json!({ "launch": { "command": ["false"] } }))
}

fn service() -> Value {
    json!({ "kind": "service", "state": "running", "owner": "ada" })
}

fn failed() -> Exit {
    Exit::of(ExitCause::UserError, "status 1")
}

async fn strikes(fixture: &Fixture, wanted: i64) {
    until(&format!("{wanted} held back"), async || {
        let rows = fixture
            .rows("select count(*) from job_converter.brake")
            .await;
        (rows == wanted).then_some(())
    })
    .await;
}

/// Rule of orchestrators.
#[tokio::test]
async fn a_launched_service_is_over_when_its_end_is_observed_first() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "s": launched(service()) })).await;
    let demand = one.demanded(&fixture, "s").await;
    fixture.running.take().unwrap().kill();
    let share = fixture.scheduler.grant(&demand);
    fixture.scheduler.ended(&share, failed());
    fixture.start().await;
    until("it to be over", async || {
        let entry = one.work_entry(&fixture, "s").await?;
        (entry.state == Standing::Over).then_some(())
    })
    .await;
    assert!(one.demand(&fixture, "s").await.is_none());
}

#[tokio::test]
async fn a_launched_process_ends_only_when_its_allocation_ends() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": launched(job()) })).await;
    let share = fixture.scheduler.grant(&one.demanded(&fixture, "a").await);
    one.has(&fixture, &share).await;
    for state in ["running", "stopped"] {
        let expected = with(launched(job()), processes(&[(&share, state)]));
        one.put(&fixture, json!({ "a": expected })).await;
        assert!(one.demanded(&fixture, "a").await.settled.is_empty());
        assert!(one.share(&fixture, &share.id).await.is_some(), "it runs");
    }
    let done = Exit::of(ExitCause::Success, "status 0");
    fixture.scheduler.ended(&share, done);
    let reported = async || one.share(&fixture, &share.id).await?.exit;
    until("its end", reported).await;
    // The same map arrives again. Shares that it does not name as running are settled.
    let expected = with(launched(job()), processes(&[(&share, "stopped")]));
    one.again(&fixture, json!({ "a": expected })).await;
    let settled = one.demanded(&fixture, "a").await.settled;
    assert_eq!(settled, [share.id].into());
}

/// Rule of orchestrators.
#[tokio::test]
async fn a_service_that_returns_its_share_continues_elsewhere() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "s": service() })).await;
    let share = fixture.scheduler.grant(&one.demanded(&fixture, "s").await);
    one.has(&fixture, &share).await;
    let map_with = |share: &AllocationEntry, state: &str| {
        let service = with(service(), processes(&[(share, state)]));
        json!({ "s": service })
    };
    one.put(&fixture, map_with(&share, "running")).await;
    fixture.scheduler.vacate(&share);
    let reported = async || one.share(&fixture, &share.id).await?.vacate;
    until("the order", reported).await;
    let answer = one.put(&fixture, map_with(&share, "stopped")).await;
    assert_eq!((answer.counts.vacated, answer.counts.completed), (1, 0));
    let demand = one.demanded(&fixture, "s").await;
    assert!(demand.max_processes == 1 && demand.settled.contains(&share.id));

    // The next process ends by itself, which also ends the service.
    let next = fixture.scheduler.grant_on(&demand, "node-2");
    one.has(&fixture, &next).await;
    one.put(&fixture, map_with(&next, "running")).await;
    let answer = one.put(&fixture, map_with(&next, "failed")).await;
    assert_eq!(answer.counts.completed, 1);
}

#[tokio::test]
async fn a_job_stays_held_back_over_a_restart_until_it_makes_progress() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": launched(job()) })).await;
    let demand = one.demanded(&fixture, "a").await;
    let share = fixture.scheduler.grant(&demand);
    one.has(&fixture, &share).await;
    let done = Exit::of(ExitCause::Success, "status 0");
    fixture.scheduler.ended(&share, done);
    let reported = async || one.share(&fixture, &share.id).await?.exit;
    until("its end", reported).await;
    strikes(&fixture, 0).await;

    let share = fixture.scheduler.grant(&demand);
    one.has(&fixture, &share).await;
    fixture.scheduler.ended(&share, failed());
    strikes(&fixture, 1).await;
    fixture.kill_and_restart().await;
    one.has(&fixture, &share).await;
    let count = "select coalesce(sum(strikes), 0) from job_converter.brake";
    assert_eq!(fixture.rows(count).await, 1, "counted once");
    let further = with(launched(job()), json!({ "items_done": 1 }));
    one.put(&fixture, json!({ "a": further })).await;
    strikes(&fixture, 0).await;
    assert_eq!(one.demanded(&fixture, "a").await.max_processes, 3);
}
