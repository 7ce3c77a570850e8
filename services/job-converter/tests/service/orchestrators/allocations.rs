//! Tests of allocations of orchestrators' work: they are granted, reported, returned, and restored
//! after a restart. The API calls such an allocation a *share*.

use hayward_job_converter_api::orchestrators::Standing;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason};
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause};
use serde_json::json;

use super::fake_orchestrator::{FakeOrchestrator, job, processes, with_fields};
use crate::fixture::Fixture;

/// Grants three allocations of the job `a` and waits until the orchestrator has read them.
async fn grant_three_allocations(
    fixture: &Fixture,
    fake: &FakeOrchestrator,
) -> [AllocationEntry; 3] {
    let demand = fake.wait_demand(fixture, "a").await;
    let allocations =
        ["node-1", "node-2", "node-2"].map(|node| fixture.scheduler.grant_on(&demand, node));
    for allocation in &allocations {
        fake.wait_share(fixture, allocation).await;
    }
    allocations
}

fn map_with_running(allocations: &[&AllocationEntry]) -> serde_json::Value {
    let running: Vec<_> = allocations
        .iter()
        .map(|allocation| (*allocation, "running"))
        .collect();
    json!({ "a": with_fields(job(), processes(&running)) })
}

/// A process that is complete, or no longer named, returns its allocation.
#[tokio::test]
async fn processes_are_reconciled_on_every_map() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let [first, second, third] = grant_three_allocations(&fixture, &fake).await;
    let listed = fake.share(&fixture, &first.id).await.unwrap();
    assert_eq!(
        (listed.work.as_str(), listed.node.as_str()),
        ("a", "node-1")
    );
    let entry = fake.work_entry(&fixture, "a").await.unwrap();
    assert_eq!((entry.state, entry.held), (Standing::Held, 3));

    // One process is new, and one is starting.
    let started = with_fields(
        job(),
        processes(&[
            (&first, "running"),
            (&second, "initialising"),
            (&third, "running"),
        ]),
    );
    fake.put(&fixture, json!({ "a": started })).await;
    let orchestrated = fake.wait_demand(&fixture, "a").await.orchestrated.unwrap();
    assert!(orchestrated.running.contains(&first.id) && !orchestrated.running.contains(&second.id));

    // One process is complete, and one is no longer named.
    let later = with_fields(
        job(),
        processes(&[(&first, "running"), (&second, "initialisation_failed")]),
    );
    let answer = fake.put(&fixture, json!({ "a": later })).await;
    assert_eq!(answer.counts.vacated, 2);
    let settled = fake.wait_demand(&fixture, "a").await.settled;
    assert_eq!(settled, [second.id.clone(), third.id.clone()].into());
    assert!(fake.share(&fixture, &second.id).await.is_none());
    assert_eq!(fake.work_entry(&fixture, "a").await.unwrap().held, 1);

    // A removed allocation leaves no state. A map that still names it changes nothing.
    fixture.scheduler.remove(&second);
    fixture.scheduler.remove(&third);
    let settled_is_empty = async || {
        let demand = fake.demand(&fixture, "a").await?;
        demand.settled.is_empty().then_some(())
    };
    until("the allocations to be forgotten", settled_is_empty).await;
    let late = with_fields(
        job(),
        processes(&[(&first, "running"), (&third, "running")]),
    );
    let answer = fake.put(&fixture, json!({ "a": late })).await;
    assert_eq!(answer.unknown_shares, std::slice::from_ref(&third.id));
    assert_eq!(
        fixture
            .query_number("select count(*) from job_converter.settled")
            .await,
        0
    );
}

/// Only a job continues without one of its processes.
#[tokio::test]
async fn work_other_than_a_job_is_over_with_its_process() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    let service = || json!({ "kind": "service", "state": "running", "owner": "ada" });
    fake.put(&fixture, json!({ "s": service() })).await;
    let allocation = fixture
        .scheduler
        .grant(&fake.wait_demand(&fixture, "s").await);
    fake.wait_share(&fixture, &allocation).await;
    let map = json!({ "s": with_fields(service(), processes(&[(&allocation, "running")])) });
    fake.put(&fixture, map).await;
    let map = json!({ "s": with_fields(service(), processes(&[(&allocation, "failed")])) });
    let answer = fake.put(&fixture, map).await;
    assert_eq!((answer.counts.vacated, answer.counts.completed), (1, 1));
    assert!(fake.demand(&fixture, "s").await.is_none());
    assert_eq!(
        fake.work_entry(&fixture, "s").await.unwrap().state,
        Standing::Over
    );
}

/// The demand says that the job is completing, so the scheduler grants no more.
#[tokio::test]
async fn a_completing_job_gets_no_more_allocations() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let [first, second, _] = grant_three_allocations(&fixture, &fake).await;
    let ending = with_fields(
        job(),
        processes(&[(&first, "running"), (&second, "stopped")]),
    );
    let ending = with_fields(ending, json!({ "state": "completing" }));
    fake.put(&fixture, json!({ "a": ending })).await;
    assert!(
        fake.wait_demand(&fixture, "a")
            .await
            .orchestrated
            .unwrap()
            .completing
    );
    let ended = with_fields(job(), processes(&[(&first, "stopped")]));
    let ended = with_fields(ended, json!({ "state": "completing" }));
    assert_eq!(
        fake.put(&fixture, json!({ "a": ended }))
            .await
            .counts
            .completed,
        1
    );
    assert!(fake.demand(&fixture, "a").await.is_none());
}

/// The orchestrator decides when a vacated allocation is free, unless its node is lost.
#[tokio::test]
async fn a_vacating_allocation_stays_until_the_map_returns_it() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let [first, second, third] = grant_three_allocations(&fixture, &fake).await;
    fake.put(&fixture, map_with_running(&[&first, &second, &third]))
        .await;
    fixture.scheduler.vacate(&first);
    let poll = async || fake.share(&fixture, &first.id).await?.vacate;
    let vacate = until("the vacate", poll).await;
    assert_eq!((vacate.reason.as_str(), vacate.purge), ("preempted", false));
    assert!(fake.wait_demand(&fixture, "a").await.settled.is_empty());
    assert_eq!(fake.view(&fixture).await.counts.leaving, 1);
    fake.put(&fixture, map_with_running(&[&second, &third]))
        .await;
    assert!(
        fake.wait_demand(&fixture, "a")
            .await
            .settled
            .contains(&first.id)
    );

    // The node of another allocation is lost. Its quanta are released at once. The allocation is
    // listed until it is read.
    let purged = fixture
        .scheduler
        .vacate_for(&second, VacateReason::NodeLost);
    fixture
        .scheduler
        .end(&purged, Exit::of(ExitCause::Node, "lost"));
    let poll = async || {
        let allocation = fake.share(&fixture, &second.id).await?;
        (allocation.state == "ended" && allocation.vacate?.purge).then_some(())
    };
    until("the loss to be published", poll).await;
    assert!(
        !fake
            .wait_demand(&fixture, "a")
            .await
            .settled
            .contains(&second.id)
    );
    fake.put(&fixture, map_with_running(&[&third])).await;
    assert!(
        fake.wait_demand(&fixture, "a")
            .await
            .settled
            .contains(&second.id)
    );
}

#[tokio::test]
async fn restarts_of_both_sides_lose_nothing() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job(), "b": job() })).await;
    let [first, second, third] = grant_three_allocations(&fixture, &fake).await;
    let mut map = map_with_running(&[&first, &second, &third]);
    map["b"] = job();
    map["bad"] = json!({ "kind": "job" });
    map["done"] = with_fields(job(), json!({ "state": "completed" }));
    fake.put(&fixture, map.clone()).await;
    let (entries, view) = (fake.entries(&fixture).await, fake.view(&fixture).await);
    let demand = fake.wait_demand(&fixture, "a").await;

    // job-converter is killed, and an allocation leaves meanwhile.
    fixture.running.take().unwrap().kill();
    fixture.scheduler.remove(&third);
    fixture.start().await;
    until("the lost allocation to be withdrawn", async || {
        fake.share(&fixture, &third.id)
            .await
            .is_none()
            .then_some(())
    })
    .await;
    let mut expected = entries.clone();
    expected.remove(third.id.as_str());
    let equal_count = async || {
        let now = fake.entries(&fixture).await;
        let same = expected.iter().filter(|(key, _)| key.as_str() != "work/a");
        same.into_iter()
            .all(|(key, entry)| now.get(key) == Some(entry))
            .then_some(now.len())
    };
    assert_eq!(until("equal entries", equal_count).await, expected.len());
    assert_eq!(fake.wait_demand(&fixture, "a").await.work, demand.work);
    let after = fake.view(&fixture).await;
    assert_eq!((after.sequence, after.faults), (view.sequence, view.faults));
    assert!(
        fake.put_again(&fixture, map).await.counts.changed == 0,
        "the same map changes nothing"
    );

    // The orchestrator loses its memory. It takes over, and allocations that it does not name are
    // retained.
    (fake.lineage, fake.sequence) = ("second", 1);
    let answer = fake.put_again(&fixture, json!({ "a": job() })).await;
    assert!(answer.applied && answer.takeover);
    assert_eq!((answer.counts.gone, answer.counts.vacated), (2, 0));
    assert!(fake.work_entry(&fixture, "done").await.is_none());
    let current = fake.wait_demand(&fixture, "a").await;
    assert!(current.work == demand.work && current.settled.is_empty());
    assert_eq!(fake.work_entry(&fixture, "a").await.unwrap().held, 2);
    fake.put(&fixture, map_with_running(&[&first])).await;
    assert!(
        fake.wait_demand(&fixture, "a").await.settled.is_empty(),
        "the second allocation was never named in this lineage"
    );
    fake.put(
        &fixture,
        json!({
            "a": with_fields(job(), processes(&[(&first, "running"), (&second, "abandoned")]))
        }),
    )
    .await;
    assert!(
        fake.wait_demand(&fixture, "a")
            .await
            .settled
            .contains(&second.id)
    );

    // The old lineage is ignored, even after another restart.
    fixture.kill_and_restart().await;
    (fake.lineage, fake.sequence) = ("first", 99);
    let old = fake.put_again(&fixture, json!({ "b": job() })).await;
    assert_eq!(old.reason.as_deref(), Some("superseded"));
}

/// `seen` names the cursor at which the orchestrator has read the vacate.
#[tokio::test]
async fn a_vacating_allocation_that_was_read_and_not_named_is_returned() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let [first, second, third] = grant_three_allocations(&fixture, &fake).await;
    let before = fake.cursor(&fixture).await;
    fixture.scheduler.vacate(&first);
    until("the vacate", async || {
        fake.share(&fixture, &first.id).await?.vacate
    })
    .await;
    fake.seen = Some(before);
    fake.put(&fixture, map_with_running(&[&second])).await;
    assert!(
        fake.wait_demand(&fixture, "a").await.settled.is_empty(),
        "the vacate was not read yet"
    );
    fake.seen = Some(fake.cursor(&fixture).await);
    fake.put(&fixture, map_with_running(&[&second])).await;
    assert_eq!(
        fake.wait_demand(&fixture, "a").await.settled,
        [first.id].into()
    );
    assert!(
        fake.share(&fixture, &third.id).await.is_some(),
        "the third allocation was not vacated"
    );
}

/// A restart makes vacates of the last term readable.
#[tokio::test]
async fn a_vacate_of_the_last_term_can_be_read_without_other_changes() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let [first, second, third] = grant_three_allocations(&fixture, &fake).await;
    fake.put(&fixture, map_with_running(&[&second, &third]))
        .await;
    fixture.scheduler.vacate(&first);
    until("the vacate", async || {
        fake.share(&fixture, &first.id).await?.vacate
    })
    .await;
    fixture.kill_and_restart().await;
    until("the allocation to be settled", async || {
        fake.seen = Some(fake.cursor(&fixture).await);
        let answer = fake
            .put_again(&fixture, map_with_running(&[&second, &third]))
            .await;
        assert!(answer.applied && answer.counts.changed == 0);
        let settled = fake.wait_demand(&fixture, "a").await.settled;
        (settled == [first.id.clone()].into()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_map_put_while_the_scheduler_is_down_counts_when_it_is_back() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    fake.put(&fixture, json!({ "a": job() })).await;
    let [first, second, third] = grant_three_allocations(&fixture, &fake).await;
    fake.put(&fixture, map_with_running(&[&first, &second, &third]))
        .await;
    let url = std::mem::take(&mut fixture.settings.rm_scheduler_url);
    fixture.settings.rm_scheduler_url = "http://127.0.0.1:9".to_owned();
    fixture.kill_and_restart().await;
    let later = with_fields(
        job(),
        processes(&[(&first, "running"), (&second, "stopped")]),
    );
    let answer = fake.put(&fixture, json!({ "a": later })).await;
    assert!(
        answer.counts.vacated == 2 && answer.unknown_shares.is_empty(),
        "{answer:?}"
    );
    assert_eq!(fake.wait_demand(&fixture, "a").await.settled.len(), 2);
    fixture.scheduler.remove(&third);
    fixture.settings.rm_scheduler_url = url;
    fixture.kill_and_restart().await;
    let second_is_settled = async || {
        let demand = fake.demand(&fixture, "a").await?;
        (demand.settled == [second.id.clone()].into()).then_some(())
    };
    until("removed allocations to be forgotten", second_is_settled).await;
    assert!(
        fake.share(&fixture, &second.id).await.is_none()
            && fake.share(&fixture, &third.id).await.is_none()
    );
    assert!(fake.share(&fixture, &first.id).await.is_some());
}

#[tokio::test]
async fn launched_work_reports_its_exit() {
    let fixture = Fixture::new().await;
    let mut fake = FakeOrchestrator::new(&fixture, "one").await;
    let launch = json!({ "launch": { "command": ["false"] } });
    let service = json!({ "kind": "service", "state": "waiting", "owner": "ada" });
    let map = json!({ "a": with_fields(job(), launch.clone()), "s": with_fields(service, launch) });
    fake.put(&fixture, map.clone()).await;
    let failed = || Exit::of(ExitCause::UserError, "status 1");
    let allocation_of_job = fixture
        .scheduler
        .grant(&fake.wait_demand(&fixture, "a").await);
    let allocation_of_service = fixture
        .scheduler
        .grant(&fake.wait_demand(&fixture, "s").await);
    for allocation in [&allocation_of_job, &allocation_of_service] {
        fake.wait_share(&fixture, allocation).await;
        fixture.scheduler.end(allocation, failed());
        let poll = async || fake.share(&fixture, &allocation.id).await?.exit;
        assert_eq!(until("its end", poll).await.cause, ExitCause::UserError);
    }
    // The service has ended with its process. The job is held back.
    assert!(fake.demand(&fixture, "s").await.is_none());
    assert_eq!(
        fake.work_entry(&fixture, "s").await.unwrap().state,
        Standing::Over
    );
    let hold_has_ended = async || {
        let demand = fake.demand(&fixture, "a").await?;
        (demand.max_processes == 3).then_some(())
    };
    until("the hold to end", hold_has_ended).await;

    // The next map settles the ended allocations.
    fake.put(&fixture, map).await;
    assert!(fake.share(&fixture, &allocation_of_job.id).await.is_none());
    assert!(
        fake.wait_demand(&fixture, "a")
            .await
            .settled
            .contains(&allocation_of_job.id)
    );
    assert_eq!(allocation_of_job.state, AllocationState::Running);
}
