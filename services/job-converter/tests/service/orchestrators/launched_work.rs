//! Ends of orchestrators' work that Hayward launches.

use hayward_job_converter_api::orchestrators::Standing;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause};
use serde_json::{Value, json};

use super::fake_orchestrator::{FakeOrchestrator, job, processes, with_fields};
use crate::fixture::Fixture;

fn with_launch(entry: Value) -> Value {
    with_fields(entry, json!({ "launch": { "command": ["false"] } }))
}

fn service() -> Value {
    json!({ "kind": "service", "state": "running", "owner": "ada" })
}

fn failed_exit() -> Exit {
    Exit::of(ExitCause::UserError, "status 1")
}

/// Waits until this number of pieces of work is held back after failures.
async fn wait_for_held_back_work(fixture: &Fixture, wanted: i64) {
    until(&format!("{wanted} held back"), async || {
        let rows = fixture
            .query_number("select count(*) from job_converter.brake")
            .await;
        (rows == wanted).then_some(())
    })
    .await;
}

/// Work that is no job ends with its process, even if the process was never seen running.
#[tokio::test]
async fn a_launched_service_is_over_when_its_end_is_observed_first() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "s": with_launch(service()) }))
        .await;
    let demand = fake.wait_demand(&fixture, "s").await;
    fixture.running.take().unwrap().kill();
    let share = fixture.scheduler.grant(&demand);
    fixture.scheduler.end(&share, failed_exit());
    fixture.start().await;
    until("it to be over", async || {
        let entry = fake.work_entry(&fixture, "s").await?;
        (entry.state == Standing::Over).then_some(())
    })
    .await;
    assert!(fake.demand(&fixture, "s").await.is_none());
}

#[tokio::test]
async fn a_launched_process_ends_only_when_its_allocation_ends() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": with_launch(job()) })).await;
    let share = fixture
        .scheduler
        .grant(&fake.wait_demand(&fixture, "a").await);
    fake.wait_share(&fixture, &share).await;
    for state in ["running", "stopped"] {
        let entry = with_fields(with_launch(job()), processes(&[(&share, state)]));
        fake.put(&fixture, json!({ "a": entry })).await;
        assert!(fake.wait_demand(&fixture, "a").await.settled.is_empty());
        assert!(fake.share(&fixture, &share.id).await.is_some(), "it runs");
    }
    let done = Exit::of(ExitCause::Success, "status 0");
    fixture.scheduler.end(&share, done);
    let poll = async || fake.share(&fixture, &share.id).await?.exit;
    until("its end", poll).await;
    // The same map arrives again. Shares that it does not name as running are settled.
    let entry = with_fields(with_launch(job()), processes(&[(&share, "stopped")]));
    fake.put_again(&fixture, json!({ "a": entry })).await;
    let settled = fake.wait_demand(&fixture, "a").await.settled;
    assert_eq!(settled, [share.id].into());
}

/// A vacated process returns its share, and its work is served again.
#[tokio::test]
async fn a_service_that_returns_its_share_continues_elsewhere() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "s": service() })).await;
    let share = fixture
        .scheduler
        .grant(&fake.wait_demand(&fixture, "s").await);
    fake.wait_share(&fixture, &share).await;
    let map_with = |share: &AllocationEntry, state: &str| {
        let service = with_fields(service(), processes(&[(share, state)]));
        json!({ "s": service })
    };
    fake.put(&fixture, map_with(&share, "running")).await;
    fixture.scheduler.vacate(&share);
    let poll = async || fake.share(&fixture, &share.id).await?.vacate;
    until("the vacate", poll).await;
    let answer = fake.put(&fixture, map_with(&share, "stopped")).await;
    assert_eq!((answer.counts.vacated, answer.counts.completed), (1, 0));
    let demand = fake.wait_demand(&fixture, "s").await;
    assert!(demand.max_processes == 1 && demand.settled.contains(&share.id));

    // The next process ends by itself, which also ends the service.
    let next = fixture.scheduler.grant_on(&demand, "node-2");
    fake.wait_share(&fixture, &next).await;
    fake.put(&fixture, map_with(&next, "running")).await;
    let answer = fake.put(&fixture, map_with(&next, "failed")).await;
    assert_eq!(answer.counts.completed, 1);
}

#[tokio::test]
async fn a_job_stays_held_back_over_a_restart_until_it_makes_progress() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": with_launch(job()) })).await;
    let demand = fake.wait_demand(&fixture, "a").await;
    let share = fixture.scheduler.grant(&demand);
    fake.wait_share(&fixture, &share).await;
    let done = Exit::of(ExitCause::Success, "status 0");
    fixture.scheduler.end(&share, done);
    let poll = async || fake.share(&fixture, &share.id).await?.exit;
    until("its end", poll).await;
    wait_for_held_back_work(&fixture, 0).await;

    let share = fixture.scheduler.grant(&demand);
    fake.wait_share(&fixture, &share).await;
    fixture.scheduler.end(&share, failed_exit());
    wait_for_held_back_work(&fixture, 1).await;
    fixture.kill_and_restart().await;
    fake.wait_share(&fixture, &share).await;
    let count = "select coalesce(sum(strikes), 0) from job_converter.brake";
    assert_eq!(fixture.query_number(count).await, 1, "counted once");
    let with_progress = with_fields(with_launch(job()), json!({ "items_done": 1 }));
    fake.put(&fixture, json!({ "a": with_progress })).await;
    wait_for_held_back_work(&fixture, 0).await;
    assert_eq!(fake.wait_demand(&fixture, "a").await.max_processes, 3);
}
