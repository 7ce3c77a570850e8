//! Tests of verdicts, and of the receipts of preemptions in them. A receipt names the preempted
//! process, the work that it was preempted for (the beneficiary), and whether that work started.

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry, WaitReason};
use hayward_testkit::until;
use hayward_vocabulary::{Outcome, Receipt, Unblock};

use super::fixture::{Fixture, allocations_of, is_staying};
use super::neighbours::{job, reservation};

impl Fixture {
    /// Starts four processes of `ann` and waits until two of them are preempted for `bob`. Returns
    /// these two.
    async fn with_contention() -> (Self, Vec<AllocationEntry>) {
        let fixture = Self::new(&[4]).await;
        fixture.neighbours.submit(&job("job_a", "ann"));
        let all = fixture.until("four processes", |all| all.len() == 4).await;
        for entry in all.values() {
            fixture.report(entry, ContainerState::Running);
        }
        fixture.settle().await;
        fixture.neighbours.submit(&job("job_b", "bob"));
        let all = fixture
            .until("two processes to leave", |all| {
                all.values().filter(|entry| !is_staying(entry)).count() == 2
            })
            .await;
        let leaving = all
            .into_values()
            .filter(|entry| !is_staying(entry))
            .collect();
        (fixture, leaving)
    }

    async fn round_of(&self, receipt: &Receipt) -> RoundView {
        let path = format!("/v1/rounds/{}", receipt.round);
        self.client("viewer").get(&path).await.unwrap()
    }
}

fn has_two_receipts(verdict: &VerdictEntry) -> bool {
    verdict.receipts.len() == 2
}

fn is_started(receipt: &Receipt) -> bool {
    matches!(receipt.outcome, Outcome::Started { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_stored_by_round_and_shows_whether_the_beneficiary_started() {
    let (mut fixture, leaving) = Fixture::with_contention().await;
    let verdict = fixture
        .until_verdict_matches("job_a", "has receipts of its losses", has_two_receipts)
        .await;
    for receipt in &verdict.receipts {
        assert!(leaving.iter().any(|entry| entry.id == receipt.allocation));
        assert_eq!(receipt.beneficiary.as_ref().unwrap().as_str(), "job_b");
        assert_eq!(receipt.for_user.as_ref().unwrap().as_str(), "bob");
        assert_eq!((receipt.order, &receipt.outcome), (1, &Outcome::Open));
        // A task takes one second, and at most the current task is lost.
        assert!(receipt.lost_ms <= 1_000, "{receipt:?}");
    }
    let beneficiary = fixture
        .until_verdict_matches("job_b", "has the same receipts", has_two_receipts)
        .await;
    assert_eq!(beneficiary.receipts, verdict.receipts);
    assert_eq!(beneficiary.reason, WaitReason::WaitingForPreemption);
    assert!(matches!(beneficiary.unblock, Some(Unblock::Wait { .. })));

    // The receipts survive a restart.
    fixture.restart().await;
    fixture.settle().await;
    fixture.report(&leaving[0], ContainerState::Ended);
    let first = fixture.until_one("job_b", "is granted", |_| true).await;
    fixture.report(&first, ContainerState::Running);
    let verdict = fixture
        .until_verdict_matches("job_a", "has one receipt of a start", |verdict| {
            verdict.receipts.iter().filter(|it| is_started(it)).count() == 1
        })
        .await;
    let started = verdict.receipts.iter().find(|it| is_started(it)).unwrap();
    let Outcome::Started { allocation, .. } = &started.outcome else {
        panic!("{started:?}")
    };
    assert_eq!(allocation, &first.id);

    fixture.report(&leaving[1], ContainerState::Ended);
    let all = fixture
        .until("two processes of job_b", |all| {
            allocations_of(all, "job_b").len() == 2
        })
        .await;
    for entry in allocations_of(&all, "job_b") {
        fixture.report(&entry, ContainerState::Running);
    }
    let verdict = fixture
        .until_verdict_matches("job_b", "has only receipts of starts", |verdict| {
            verdict.receipts.iter().all(is_started)
        })
        .await;
    let round = fixture.round_of(&verdict.receipts[0]).await;
    assert_eq!(round.receipts.len(), 2);
    assert!(
        round
            .receipts
            .iter()
            .all(|it| verdict.receipts.contains(it))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_explains_why_the_beneficiary_did_not_start() {
    let (fixture, leaving) = Fixture::with_contention().await;
    let verdict = fixture
        .until_verdict_matches("job_a", "has receipts of its losses", has_two_receipts)
        .await;
    fixture.neighbours.demand.remove("job_b");
    for entry in &leaving {
        fixture.report(entry, ContainerState::Ended);
    }
    let has_ended_first = |receipt: &Receipt| {
        matches!(&receipt.outcome,
            Outcome::NotStarted { detail, .. } if detail == "job_b ended first")
    };
    fixture
        .until_verdict_matches("job_a", "has only receipts without a start", |verdict| {
            verdict.receipts.iter().all(has_ended_first)
        })
        .await;
    let round = fixture.round_of(&verdict.receipts[0]).await;
    assert!(round.receipts.iter().all(has_ended_first));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_node_closes_the_receipts_of_all_preempted_processes() {
    let fixture = Fixture::new(&[2]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    let all = fixture.until("two processes", |all| all.len() == 2).await;
    fixture.neighbours.submit(&reservation("rsv_b", "bob", 2));
    fixture
        .until_verdict_matches("rsv_b", "has two receipts", has_two_receipts)
        .await;
    let mut leaving = all.values();
    fixture.report(leaving.next().unwrap(), ContainerState::Ended);
    fixture.settle().await;
    let verdict = &fixture.verdicts().await["rsv_b"];
    assert!(
        verdict
            .receipts
            .iter()
            .all(|it| it.outcome == Outcome::Open)
    );
    fixture.report(leaving.next().unwrap(), ContainerState::Ended);
    fixture
        .until_verdict_matches("rsv_b", "has only receipts of starts", |verdict| {
            verdict.receipts.iter().all(is_started)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_published_when_its_meaning_changes_and_read_with_new_numbers() {
    let fixture = Fixture::new(&[4]).await;
    let mut large = job("job_l", "ann");
    large.size.memory_bytes *= 9;
    fixture.neighbours.submit(&large);
    let verdict = fixture
        .until_verdict("job_l", WaitReason::NoHostLargeEnough)
        .await;
    assert_eq!(verdict.unblock, Some(Unblock::AskForLess { quanta: 4 }));
    fixture.settle().await;
    let published = fixture.verdicts().await;
    // The largest node grows: the same change with another number.
    fixture.neighbours.node("n1", 6);
    let newest = until("a new number", async || {
        let path = "/v1/verdicts/job_l";
        let now: VerdictEntry = fixture.client("viewer").get(path).await.unwrap();
        (now.unblock != verdict.unblock).then_some(now)
    })
    .await;
    assert_eq!(newest.unblock, Some(Unblock::AskForLess { quanta: 6 }));
    assert_eq!(
        (newest.since, newest.reason),
        (verdict.since, verdict.reason)
    );
    assert_eq!(fixture.verdicts().await, published);
    // The job would fit now, but other work is entitled to the space.
    fixture.neighbours.submit(&job("job_s", "bob"));
    fixture.neighbours.node("n1", 9);
    fixture
        .until_verdict_matches("job_l", "another reason", |verdict| {
            verdict.reason != WaitReason::NoHostLargeEnough
        })
        .await;
}
