//! Tests of shares that are granted, reported, returned, and restored after a restart.

use hayward_job_converter_api::orchestrators::Standing;
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState, VacateReason};
use hayward_testkit::until;
use hayward_vocabulary::{Exit, ExitCause};
use serde_json::json;

use super::fixture::{Orchestrator, job, processes, with};
use crate::fixture::Fixture;

/// Grants three shares of the job `a` and waits until the orchestrator has read them.
async fn three(fixture: &Fixture, one: &Orchestrator) -> [AllocationEntry; 3] {
    let demand = one.demanded(fixture, "a").await;
    let shares =
        ["node-1", "node-2", "node-2"].map(|node| fixture.scheduler.grant_on(&demand, node));
    for share in &shares {
        one.has(fixture, share).await;
    }
    shares
}

fn runs(shares: &[&AllocationEntry]) -> serde_json::Value {
    let running: Vec<_> = shares.iter().map(|share| (*share, "running")).collect();
    json!({ "a": with(job(), processes(&running)) })
}

/// Rule of orchestrators.
#[tokio::test]
async fn processes_are_reconciled_on_every_map() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": job() })).await;
    let [x, y, z] = three(&fixture, &one).await;
    let listed = one.share(&fixture, &x.id).await.unwrap();
    assert_eq!(
        (listed.work.as_str(), listed.node.as_str()),
        ("a", "node-1")
    );
    let entry = one.work_entry(&fixture, "a").await.unwrap();
    assert_eq!((entry.state, entry.held), (Standing::Held, 3));

    // One process is new, and one is starting.
    let started = with(
        job(),
        processes(&[(&x, "running"), (&y, "initialising"), (&z, "running")]),
    );
    one.put(&fixture, json!({ "a": started })).await;
    let reported = one.demanded(&fixture, "a").await.orchestrated.unwrap();
    assert!(reported.running.contains(&x.id) && !reported.running.contains(&y.id));

    // One process is complete, and one is no longer named.
    let later = with(
        job(),
        processes(&[(&x, "running"), (&y, "initialisation_failed")]),
    );
    let answer = one.put(&fixture, json!({ "a": later })).await;
    assert_eq!(answer.counts.vacated, 2);
    let settled = one.demanded(&fixture, "a").await.settled;
    assert_eq!(settled, [y.id.clone(), z.id.clone()].into());
    assert!(one.share(&fixture, &y.id).await.is_none());
    assert_eq!(one.work_entry(&fixture, "a").await.unwrap().held, 1);

    // A removed share leaves no state. A map that still names it changes nothing.
    fixture.scheduler.remove(&y);
    fixture.scheduler.remove(&z);
    let gone = async || {
        let demand = one.demand(&fixture, "a").await?;
        demand.settled.is_empty().then_some(())
    };
    until("the shares to be forgotten", gone).await;
    let late = with(job(), processes(&[(&x, "running"), (&z, "running")]));
    let answer = one.put(&fixture, json!({ "a": late })).await;
    assert_eq!(answer.unknown_shares, std::slice::from_ref(&z.id));
    assert_eq!(
        fixture
            .rows("select count(*) from job_converter.settled")
            .await,
        0
    );
}

/// Rule of orchestrators.
#[tokio::test]
async fn work_other_than_a_job_is_over_with_its_process() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    let service = || json!({ "kind": "service", "state": "running", "owner": "ada" });
    one.put(&fixture, json!({ "s": service() })).await;
    let share = fixture.scheduler.grant(&one.demanded(&fixture, "s").await);
    one.has(&fixture, &share).await;
    let map = json!({ "s": with(service(), processes(&[(&share, "running")])) });
    one.put(&fixture, map).await;
    let map = json!({ "s": with(service(), processes(&[(&share, "failed")])) });
    let answer = one.put(&fixture, map).await;
    assert_eq!((answer.counts.vacated, answer.counts.completed), (1, 1));
    assert!(one.demand(&fixture, "s").await.is_none());
    assert_eq!(
        one.work_entry(&fixture, "s").await.unwrap().state,
        Standing::Over
    );
}

/// Rule of orchestrators.
#[tokio::test]
async fn a_completing_job_gets_no_more_shares() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": job() })).await;
    let [x, y, _] = three(&fixture, &one).await;
    let ending = with(job(), processes(&[(&x, "running"), (&y, "stopped")]));
    let ending = with(ending, json!({ "state": "completing" }));
    one.put(&fixture, json!({ "a": ending })).await;
    assert!(
        one.demanded(&fixture, "a")
            .await
            .orchestrated
            .unwrap()
            .completing
    );
    let ended = with(job(), processes(&[(&x, "stopped")]));
    let ended = with(ended, json!({ "state": "completing" }));
    assert_eq!(
        one.put(&fixture, json!({ "a": ended }))
            .await
            .counts
            .completed,
        1
    );
    assert!(one.demand(&fixture, "a").await.is_none());
}

/// Rule of orchestrators.
#[tokio::test]
async fn a_vacating_share_stays_until_the_map_returns_it() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": job() })).await;
    let [x, y, z] = three(&fixture, &one).await;
    one.put(&fixture, runs(&[&x, &y, &z])).await;
    fixture.scheduler.vacate(&x);
    let reported = async || one.share(&fixture, &x.id).await?.vacate;
    let vacate = until("the order to give it back", reported).await;
    assert_eq!((vacate.reason.as_str(), vacate.purge), ("preempted", false));
    assert!(one.demanded(&fixture, "a").await.settled.is_empty());
    assert_eq!(one.view(&fixture).await.counts.leaving, 1);
    one.put(&fixture, runs(&[&y, &z])).await;
    assert!(one.demanded(&fixture, "a").await.settled.contains(&x.id));

    // The node of another share is lost. Its quanta are released at once, and the share is listed
    // until it is read.
    let purged = fixture.scheduler.vacate_for(&y, VacateReason::NodeLost);
    fixture
        .scheduler
        .ended(&purged, Exit::of(ExitCause::Node, "lost"));
    let reported = async || {
        let share = one.share(&fixture, &y.id).await?;
        (share.state == "ended" && share.vacate?.purge).then_some(())
    };
    until("the loss to be told", reported).await;
    assert!(!one.demanded(&fixture, "a").await.settled.contains(&y.id));
    one.put(&fixture, runs(&[&z])).await;
    assert!(one.demanded(&fixture, "a").await.settled.contains(&y.id));
}

#[tokio::test]
async fn restarts_of_both_sides_lose_nothing() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": job(), "b": job() })).await;
    let [x, y, z] = three(&fixture, &one).await;
    let mut map = runs(&[&x, &y, &z]);
    map["b"] = job();
    map["bad"] = json!({ "kind": "job" });
    map["done"] = with(job(), json!({ "state": "completed" }));
    one.put(&fixture, map.clone()).await;
    let (set, view) = (one.set(&fixture).await, one.view(&fixture).await);
    let demand = one.demanded(&fixture, "a").await;

    // job-converter is killed, and a share leaves meanwhile.
    fixture.running.take().unwrap().kill();
    fixture.scheduler.remove(&z);
    fixture.start().await;
    until("the lost share to go", async || {
        one.share(&fixture, &z.id).await.is_none().then_some(())
    })
    .await;
    let mut left = set.clone();
    left.remove(z.id.as_str());
    let shares = async || {
        let now = one.set(&fixture).await;
        let same = left.iter().filter(|(key, _)| key.as_str() != "work/a");
        same.into_iter()
            .all(|(key, entry)| now.get(key) == Some(entry))
            .then_some(now.len())
    };
    assert_eq!(until("the set to be the same", shares).await, left.len());
    assert_eq!(one.demanded(&fixture, "a").await.work, demand.work);
    let after = one.view(&fixture).await;
    assert_eq!((after.sequence, after.faults), (view.sequence, view.faults));
    assert!(
        one.again(&fixture, map).await.counts.changed == 0,
        "the same map says nothing new"
    );

    // The orchestrator loses its memory. It takes over, and shares it does not name are retained.
    (one.lineage, one.sequence) = ("second", 1);
    let answer = one.again(&fixture, json!({ "a": job() })).await;
    assert!(answer.applied && answer.takeover);
    assert_eq!((answer.counts.gone, answer.counts.vacated), (2, 0));
    assert!(one.work_entry(&fixture, "done").await.is_none());
    let demanded = one.demanded(&fixture, "a").await;
    assert!(demanded.work == demand.work && demanded.settled.is_empty());
    assert_eq!(one.work_entry(&fixture, "a").await.unwrap().held, 2);
    one.put(&fixture, runs(&[&x])).await;
    assert!(
        one.demanded(&fixture, "a").await.settled.is_empty(),
        "never named in this life"
    );
    one.put(
        &fixture,
        json!({ "a": with(job(), processes(&[(&x, "running"), (&y, "abandoned")])) }),
    )
    .await;
    assert!(one.demanded(&fixture, "a").await.settled.contains(&y.id));

    // The old lineage is ignored, even after another restart.
    fixture.kill_and_restart().await;
    (one.lineage, one.sequence) = ("first", 99);
    let old = one.again(&fixture, json!({ "b": job() })).await;
    assert_eq!(old.reason.as_deref(), Some("superseded"));
}

/// Rule of orchestrators.
#[tokio::test]
async fn a_vacating_share_that_was_read_and_not_named_is_returned() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": job() })).await;
    let [x, y, z] = three(&fixture, &one).await;
    let before = one.cursor(&fixture).await;
    fixture.scheduler.vacate(&x);
    until("the order", async || {
        one.share(&fixture, &x.id).await?.vacate
    })
    .await;
    one.seen = Some(before);
    one.put(&fixture, runs(&[&y])).await;
    assert!(
        one.demanded(&fixture, "a").await.settled.is_empty(),
        "it had not read it then"
    );
    one.seen = Some(one.cursor(&fixture).await);
    one.put(&fixture, runs(&[&y])).await;
    assert_eq!(one.demanded(&fixture, "a").await.settled, [x.id].into());
    assert!(
        one.share(&fixture, &z.id).await.is_some(),
        "nobody told it to go"
    );
}

/// Rule of orchestrators.
#[tokio::test]
async fn an_order_of_the_last_term_can_be_read_without_other_changes() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": job() })).await;
    let [x, y, z] = three(&fixture, &one).await;
    one.put(&fixture, runs(&[&y, &z])).await;
    fixture.scheduler.vacate(&x);
    until("the order", async || {
        one.share(&fixture, &x.id).await?.vacate
    })
    .await;
    fixture.kill_and_restart().await;
    until("it to be given back", async || {
        one.seen = Some(one.cursor(&fixture).await);
        let answer = one.again(&fixture, runs(&[&y, &z])).await;
        assert!(answer.applied && answer.counts.changed == 0);
        let settled = one.demanded(&fixture, "a").await.settled;
        (settled == [x.id.clone()].into()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_map_put_without_the_scheduler_counts_when_it_is_back() {
    let mut fixture = Fixture::with_short_lease().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    one.put(&fixture, json!({ "a": job() })).await;
    let [x, y, z] = three(&fixture, &one).await;
    one.put(&fixture, runs(&[&x, &y, &z])).await;
    let url = std::mem::take(&mut fixture.settings.rm_scheduler_url);
    fixture.settings.rm_scheduler_url = "http://127.0.0.1:9".to_owned();
    fixture.kill_and_restart().await;
    let later = with(job(), processes(&[(&x, "running"), (&y, "stopped")]));
    let answer = one.put(&fixture, json!({ "a": later })).await;
    assert!(
        answer.counts.vacated == 2 && answer.unknown_shares.is_empty(),
        "{answer:?}"
    );
    assert_eq!(one.demanded(&fixture, "a").await.settled.len(), 2);
    fixture.scheduler.remove(&z);
    fixture.settings.rm_scheduler_url = url;
    fixture.kill_and_restart().await;
    let proven = async || {
        let demand = one.demand(&fixture, "a").await?;
        (demand.settled == [y.id.clone()].into()).then_some(())
    };
    until("what is gone to be forgotten", proven).await;
    assert!(
        one.share(&fixture, &y.id).await.is_none() && one.share(&fixture, &z.id).await.is_none()
    );
    assert!(one.share(&fixture, &x.id).await.is_some());
}

#[tokio::test]
async fn launched_work_reports_its_exit() {
    let fixture = Fixture::new().await;
    let mut one = Orchestrator::new(&fixture, "one").await;
    let launch = json!({ "launch": { "command": ["false"] } });
    let service = json!({ "kind": "service", "state": "waiting", "owner": "ada" });
    let map = json!({ "a": with(job(), launch.clone()), "s": with(service, launch) });
    one.put(&fixture, map.clone()).await;
    let failed = || Exit::of(ExitCause::UserError, "status 1");
    let of_job = fixture.scheduler.grant(&one.demanded(&fixture, "a").await);
    let of_service = fixture.scheduler.grant(&one.demanded(&fixture, "s").await);
    for share in [&of_job, &of_service] {
        one.has(&fixture, share).await;
        fixture.scheduler.ended(share, failed());
        let reported = async || one.share(&fixture, &share.id).await?.exit;
        assert_eq!(until("its end", reported).await.cause, ExitCause::UserError);
    }
    // The service has ended with its process. The job is held back.
    assert!(one.demand(&fixture, "s").await.is_none());
    assert_eq!(
        one.work_entry(&fixture, "s").await.unwrap().state,
        Standing::Over
    );
    let again = async || {
        let demand = one.demand(&fixture, "a").await?;
        (demand.max_processes == 3).then_some(())
    };
    until("the hold to end", again).await;

    // The next map settles the ended shares.
    one.put(&fixture, map).await;
    assert!(one.share(&fixture, &of_job.id).await.is_none());
    assert!(
        one.demanded(&fixture, "a")
            .await
            .settled
            .contains(&of_job.id)
    );
    assert_eq!(of_job.state, AllocationState::Running);
}
