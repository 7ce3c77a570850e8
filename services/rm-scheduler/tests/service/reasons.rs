//! Explanations: further reasons, changes that unblock, and receipts of preemptions.

use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::views::RoundView;
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry, WaitReason};
use hayward_testkit::until;
use hayward_vocabulary::{Outcome, Receipt, Unblock};

use super::fixture::{Fixture, allocations_of, stays};
use super::neighbours::{job, reservation};

impl Fixture {
    /// `ann` has four running processes, and some have to leave for `bob`.
    async fn with_contention() -> (Self, Vec<AllocationEntry>) {
        let fixture = Self::new(&[4]).await;
        fixture.neighbours.submit(&job("job_a", "ann"));
        let all = fixture.until("all of it", |all| all.len() == 4).await;
        for entry in all.values() {
            fixture.report(entry, ContainerState::Running);
        }
        fixture.settle().await;
        fixture.neighbours.submit(&job("job_b", "bob"));
        let all = fixture
            .until("two to go", |all| {
                all.values().filter(|entry| !stays(entry)).count() == 2
            })
            .await;
        let leaving = all.into_values().filter(|entry| !stays(entry)).collect();
        (fixture, leaving)
    }

    async fn round_of(&self, receipt: &Receipt) -> RoundView {
        let path = format!("/v1/rounds/{}", receipt.round);
        self.client("viewer").get(&path).await.unwrap()
    }
}

fn has_two(verdict: &VerdictEntry) -> bool {
    verdict.receipts.len() == 2
}

fn is_started(receipt: &Receipt) -> bool {
    matches!(receipt.outcome, Outcome::Started { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_stored_by_round_and_shows_whether_the_beneficiary_started() {
    let (mut fixture, leaving) = Fixture::with_contention().await;
    let verdict = fixture
        .until_verdict_matches("job_a", "what it lost", has_two)
        .await;
    for receipt in &verdict.receipts {
        assert!(leaving.iter().any(|entry| entry.id == receipt.allocation));
        assert_eq!(receipt.beneficiary.as_ref().unwrap().as_str(), "job_b");
        assert_eq!(receipt.for_user.as_ref().unwrap().as_str(), "bob");
        assert_eq!((receipt.order, &receipt.outcome), (1, &Outcome::Open));
        // A task takes a second, and finished tasks are not lost.
        assert!(receipt.lost_ms <= 1_000, "{receipt:?}");
    }
    let beneficiary = fixture
        .until_verdict_matches("job_b", "the same", has_two)
        .await;
    assert_eq!(beneficiary.receipts, verdict.receipts);
    assert_eq!(beneficiary.reason, WaitReason::WaitingForPreemption);
    assert!(matches!(beneficiary.unblock, Some(Unblock::Wait { .. })));

    // It survives a restart.
    fixture.restart().await;
    fixture.settle().await;
    fixture.report(&leaving[0], ContainerState::Ended);
    let first = fixture.until_one("job_b", "one", |_| true).await;
    fixture.report(&first, ContainerState::Running);
    let verdict = fixture
        .until_verdict_matches("job_a", "that one started", |verdict| {
            verdict.receipts.iter().filter(|it| is_started(it)).count() == 1
        })
        .await;
    let answered = verdict.receipts.iter().find(|it| is_started(it)).unwrap();
    let Outcome::Started { allocation, .. } = &answered.outcome else {
        panic!("{answered:?}")
    };
    assert_eq!(allocation, &first.id);

    fixture.report(&leaving[1], ContainerState::Ended);
    let all = fixture
        .until("both", |all| allocations_of(all, "job_b").len() == 2)
        .await;
    for entry in allocations_of(&all, "job_b") {
        fixture.report(&entry, ContainerState::Running);
    }
    let verdict = fixture
        .until_verdict_matches("job_b", "that both started", |verdict| {
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
        .until_verdict_matches("job_a", "what it lost", has_two)
        .await;
    fixture.neighbours.demand.remove("job_b");
    for entry in &leaving {
        fixture.report(entry, ContainerState::Ended);
    }
    let ended = |receipt: &Receipt| {
        let is_ended = matches!(&receipt.outcome,
            Outcome::NotStarted { detail, .. } if detail == "job_b ended first");
        is_ended.then_some(())
    };
    fixture
        .until_verdict_matches("job_a", "that it was for nothing", |verdict| {
            verdict.receipts.iter().all(|it| ended(it).is_some())
        })
        .await;
    let round = fixture.round_of(&verdict.receipts[0]).await;
    assert!(round.receipts.iter().all(|it| ended(it).is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_node_closes_the_receipts_of_all_preempted_processes() {
    let fixture = Fixture::new(&[2]).await;
    fixture.neighbours.submit(&job("job_a", "ann"));
    let all = fixture.until("all of it", |all| all.len() == 2).await;
    fixture.neighbours.submit(&reservation("rsv_b", "bob", 2));
    fixture
        .until_verdict_matches("rsv_b", "who leaves", has_two)
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
        .until_verdict_matches("rsv_b", "that it has the machine", |verdict| {
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
    let newest = until("the number to move", async || {
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
    // It would fit now, but other work is entitled to the space.
    fixture.neighbours.submit(&job("job_s", "bob"));
    fixture.neighbours.node("n1", 9);
    fixture
        .until_verdict_matches("job_l", "another reason", |verdict| {
            verdict.reason != WaitReason::NoHostLargeEnough
        })
        .await;
}
