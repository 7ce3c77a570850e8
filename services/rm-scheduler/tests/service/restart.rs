//! Tests of restarts: the scheduler is killed and started again, or a second replica takes over.

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};
use hayward_rm_scheduler_api::shares::LedgerLine;
use hayward_rm_scheduler_api::{AllocationState, VacateReason, WaitReason};
use hayward_service::Code;
use http::Method;
use http::header::IF_MATCH;

use super::fixture::{Fixture, allocations_of, is_staying};
use super::neighbours::{job, reservation};

#[tokio::test(flavor = "multi_thread")]
async fn allocations_and_incarnations_survive_a_restart() {
    let mut fixture = Fixture::new(&[4, 4]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 3;
    fixture.neighbours.submit(&demand);
    let mut other = job("job_b", "bob");
    other.max_processes = 2;
    fixture.neighbours.submit(&other);
    let all = fixture.until("five processes", |all| all.len() == 5).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    let running = |all: &super::fixture::Allocations| {
        all.values()
            .all(|entry| entry.state == AllocationState::Running)
    };
    let before = fixture.until("all running", running).await;
    fixture.settle().await;
    let ledger = fixture.shares().await.unwrap().ledger;

    // While no scheduler runs, one process of ann ends and bob withdraws his job.
    fixture.kill();
    let ended = allocations_of(&before, "job_a").remove(0);
    fixture.report(&ended, ContainerState::Ended);
    fixture.neighbours.demand.remove("job_b");
    fixture.start().await;
    let all = fixture
        .until("the successor", |all| {
            allocations_of(all, "job_a")
                .iter()
                .any(|entry| entry.incarnation == 4)
        })
        .await;
    let of_job_a = allocations_of(&all, "job_a");
    assert_eq!(of_job_a.iter().filter(|entry| is_staying(entry)).count(), 3);
    for entry in allocations_of(&before, "job_a")
        .iter()
        .filter(|entry| entry.id != ended.id)
    {
        assert_eq!(all.get(entry.id.as_str()), Some(entry));
    }
    let all_vacated = |all: &super::fixture::Allocations| {
        let is_vacated = |entry: &hayward_rm_scheduler_api::AllocationEntry| {
            entry
                .vacate
                .as_ref()
                .is_some_and(|vacate| vacate.reason == VacateReason::WorkGone)
        };
        allocations_of(all, "job_b").iter().all(is_vacated)
    };
    fixture.until("the vacate of job_b", all_vacated).await;
    fixture.settle().await;
    assert!(!fixture.verdicts().await.contains_key("job_b"));
    assert_eq!(fixture.allocations().await.len(), 6);
    let now = fixture.shares().await.unwrap().ledger;
    assert_little_is_lost(&ledger, &now);
}

/// Asserts that the restart has lost less than two seconds of each line. No line has more than
/// three quanta.
fn assert_little_is_lost(before: &[LedgerLine], now: &[LedgerLine]) {
    for line in before {
        let same = now
            .iter()
            .find(|now| now.user == line.user && now.class == line.class);
        let received = same.map_or(0, |same| same.received_quantum_ms);
        assert!(
            line.received_quantum_ms <= received + 3 * 2_000,
            "{line:?} {same:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_kills_never_lead_to_a_second_grant() {
    let mut fixture = Fixture::new(&[16]).await;
    for index in 0..8 {
        let work = format!("job_{index}");
        let mut demand = job(&work, "ann");
        demand.max_processes = 2;
        fixture.neighbours.submit(&demand);
        // At this instant some processes are granted and some are not.
        fixture.restart().await;
    }
    fixture
        .until("two processes of each job", |all| all.len() == 16)
        .await;
    fixture.settle().await;
    let all = fixture.allocations().await;
    assert_eq!(all.len(), 16);
    for index in 0..8 {
        let mut numbers: Vec<u64> = allocations_of(&all, &format!("job_{index}"))
            .iter()
            .map(|entry| entry.incarnation)
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2], "job_{index}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_changes_commits_nothing() {
    let mut fixture = Fixture::new(&[2, 8]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    fixture.neighbours.submit(&reservation("rsv_a", "bob", 8));
    fixture.until("all in use", |all| all.len() == 3).await;
    fixture.settle().await;
    let before = (fixture.allocations().await, fixture.verdicts().await);
    fixture.restart().await;
    fixture.settle().await;
    assert_eq!(
        (fixture.allocations().await, fixture.verdicts().await),
        before
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_survives_a_restart() {
    let mut fixture = Fixture::new(&[1]).await;
    let mut policy = Policy::default();
    policy.classes.get_mut("high").unwrap().weight = Some(7);
    let call = fixture
        .client("operator")
        .call(Method::PUT, "/v1/policy")
        .header(IF_MATCH, "\"0\"");
    let set: PolicyView = call.body(&policy).send().await.unwrap();
    fixture.restart().await;
    let read: PolicyView = fixture.client("viewer").get("/v1/policy").await.unwrap();
    assert_eq!(read, set);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_leads_and_the_other_takes_over() {
    let mut fixture = Fixture::new(&[2]).await;
    let second = fixture.second_replica().await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 1;
    fixture.neighbours.submit(&demand);
    let before = fixture.until("one process", |all| all.len() == 1).await;
    assert!(!second.is_leading());
    let refused: Result<serde_json::Value, _> = fixture
        .client_for_replica(&second, "operator")
        .get("/v1/allocations")
        .await;
    assert_eq!(refused.unwrap_err().problem().unwrap().code, Code::Standby);

    fixture.take_over(second);
    let bob = job("job_b", "bob");
    fixture.neighbours.submit(&bob);
    until_second_leads(&fixture).await;
    let all = fixture
        .until("one process of job_b", |all| {
            allocations_of(all, "job_b").len() == 1
        })
        .await;
    assert_eq!(all.len(), 2);
    for (id, entry) in &before {
        assert_eq!(all.get(id), Some(entry));
    }
    fixture.until_verdict("job_a", WaitReason::Satisfied).await;
}

async fn until_second_leads(fixture: &Fixture) {
    hayward_testkit::until("the lead of the second replica", async || {
        fixture
            .client("operator")
            .get::<serde_json::Value>("/v1/allocations")
            .await
            .ok()
    })
    .await;
}

/// Carry-over is the data that a round stores for the next rounds, for example deficits.
#[tokio::test(flavor = "multi_thread")]
async fn carry_over_survives_a_restart_and_idle_rounds_write_none() {
    let mut fixture = Fixture::new(&[5]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    let all = fixture.until("five processes", |all| all.len() == 5).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    fixture.neighbours.submit(&job("job_b", "bob"));
    fixture
        .until("two processes to leave", |all| {
            all.values().filter(|entry| !is_staying(entry)).count() >= 2
        })
        .await;
    fixture.settle().await;
    // Rows of kind `hit` expire after some rounds, so they are left out.
    let rows = "select kind || ' ' || name || ' ' || body::text from rm_scheduler.carried
                where kind <> 'hit' order by kind, name";
    let before = fixture.rows(rows).await;
    // Each user is due two and a half of five quanta, so rounding leaves a deficit for each user.
    let kinds = |kind: &str| before.iter().filter(|row| row.starts_with(kind)).count();
    assert_eq!(
        (kinds("claim"), kinds("class"), kinds("user")),
        (1, 1, 2),
        "{before:?}"
    );
    fixture.restart().await;
    fixture.settle().await;
    assert_eq!(fixture.rows(rows).await, before);

    fixture.neighbours.demand.remove("job_b");
    hayward_testkit::until("the removal of the verdict of job_b", async || {
        (!fixture.verdicts().await.contains_key("job_b")).then_some(())
    })
    .await;
    fixture.settle().await;
    let after = fixture.rows(rows).await;
    let of_bob = |row: &String| row.contains("job_b") || row.contains("bob");
    assert!(!after.iter().any(of_bob), "{after:?}");
}
