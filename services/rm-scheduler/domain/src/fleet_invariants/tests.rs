//! Live checks of small fleets that break one invariant at a time.

mod nodes;
mod waits;

use hayward_vocabulary::invariant_finding::{Finding, Outcome as Found};
use hayward_vocabulary::{AllocationId, Outcome, Receipt, Size, Timestamp};

use super::*;
use crate::{
    input::{
        queues::{Gang, Queued},
        snapshot::{Allocation, Snapshot},
    },
    tests::fixture::{Fixture, GIB, node_name, work_id},
};

fn alloc_id(text: &str) -> AllocationId {
    AllocationId::new(text).unwrap()
}

/// Returns a fleet of nodes `n00` and `n01`, each of 4 quanta. On `n00`, job `job_1` has these
/// allocations, given by id and quanta.
fn fleet(allocations: &[(&str, u64)]) -> Fixture {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("job_1", "ann", 1);
    for (id, quanta) in allocations {
        fixture
            .snapshot
            .allocations
            .insert(alloc_id(id), allocation("job_1", "n00", *quanta));
    }
    fixture
}

fn allocation(work: &str, node: &str, quanta: u64) -> Allocation {
    Allocation {
        work: work_id(work),
        kind: hayward_vocabulary::WorkKind::Job,
        user: "ann".parse().unwrap(),
        class: "fair".into(),
        node: node_name(node),
        quanta,
        size: Size::memory(quanta * GIB),
        fixed: false,
        granted_at: Timestamp::default(),
        running: true,
        started_at: None,
        running_since: None,
        investment_ms: None,
        item_ms: None,
        gpus: Vec::new(),
        leaving: false,
        purged: false,
        group: None,
    }
}

/// Returns a sequence in which all nodes come before all allocations.
fn sequence_of(snapshot: &Snapshot) -> Sequence {
    let mut sequence = Sequence::default();
    for (name, node) in &snapshot.nodes {
        sequence.record_node(name, None, node);
    }
    for id in snapshot.allocations.keys() {
        sequence.record_allocation(id, true);
    }
    sequence
}

/// Returns the subject of the first evidence, or `None` if the invariant holds.
fn subject(finding: &Finding) -> Option<&str> {
    match &finding.outcome {
        Found::Violated { evidence, .. } => Some(&evidence[0].subject),
        _ => None,
    }
}

/// Every account equals the sum of the live allocations (I10).
#[test]
fn accounts_that_differ_from_the_allocations_are_reported() {
    let (ann, n1): (_, NodeName) = ("ann".parse().unwrap(), node_name("n1"));
    let account = |name, quanta| {
        let mut account = Account::new(name);
        account.add(&ann, "fair", &n1, quanta);
        account
    };
    let live = account("live", 3);
    assert!(check_accounts(&live, &[account("the index", 3)]).holds());
    let found = check_accounts(
        &live,
        &[account("the index", 3), account("the snapshot", 2)],
    );
    assert_eq!(subject(&found), Some("ann"));
    assert_eq!(
        subject(&check_accounts(&live, &[Account::new("empty")])),
        Some("ann")
    );
    assert_eq!(
        subject(&check_accounts(&Account::new("live"), &[live])),
        Some("ann")
    );
}

/// A gang has its minimum, or holds nothing (I13).
#[test]
fn a_gang_that_stays_torn_is_reported() {
    let mut fixture = fleet(&[("alc_1", 1)]);
    let gang = |min| {
        let name = "workers".to_owned();
        let queued = Queued {
            gang: Some(Gang { name, min }),
            ..Queued::default()
        };
        Some(Box::new(queued))
    };
    let mut memory = Memory::default();
    fixture.demand_mut("job_1").queued = gang(1);
    assert!(
        check_gangs(&fixture.snapshot, |_| 1, &mut memory, 0).holds(),
        "the gang has its minimum"
    );
    fixture.demand_mut("job_1").queued = gang(2);
    let granted = std::cell::Cell::new(1);
    let mut check = |fixture: &Fixture, now| {
        check_gangs(&fixture.snapshot, |_| granted.get(), &mut memory, now)
    };
    assert!(check(&fixture, 1_000).holds(), "within the grace time");
    let found = check(&fixture, 121_000);
    assert_eq!(subject(&found), Some("job_1"));
    // The gang had two processes before, so it was complete and is not checked here.
    granted.set(2);
    assert!(check(&fixture, 121_500).holds());
    granted.set(1);
    // A gang that is being released is no violation.
    fixture
        .snapshot
        .allocations
        .get_mut(&alloc_id("alc_1"))
        .unwrap()
        .leaving = true;
    assert!(check(&fixture, 122_000).holds());
    fixture.snapshot.allocations.clear();
    assert!(check(&fixture, 300_000).holds(), "the gang holds nothing");
}

/// Time of the preemptions in milliseconds. The receipts differ by one millisecond.
const PREEMPTED_AT_MS: i64 = 1_000_000;
/// Time of a check within the minutes in which a receipt may be without a result.
const SOON_MS: i64 = 1_100_000;
/// Time of a check after these minutes. The receipts are still recent.
const LATE_MS: i64 = 3_000_000;

/// Returns a receipt: work `from` lost a process for work `to`.
fn receipt(number: u64, from: &str, to: &str, outcome: Outcome) -> Receipt {
    Receipt {
        round: number,
        at: Timestamp::from_unix_ms(PREEMPTED_AT_MS + i64::try_from(number).unwrap()),
        allocation: alloc_id(&format!("alc_{number}")),
        work: work_id(from),
        user: "ann".parse().unwrap(),
        node: node_name("n1"),
        order: 1,
        lost_ms: 0,
        beneficiary: Some(work_id(to)),
        for_user: None,
        outcome,
    }
}

/// Returns the outcome that the beneficiary started on another node.
fn started() -> Outcome {
    Outcome::StartedElsewhere {
        allocation: alloc_id("alc_0"),
        node: node_name("n2"),
    }
}

/// Checks receipts of work that is still wanted, on nodes that can be reached.
fn check_receipts(receipts: &[Receipt], now_ms: i64) -> Finding {
    let now = Timestamp::from_unix_ms(now_ms);
    check_preemptions(receipts.iter(), |_| true, |_| false, now)
}

/// A preemption serves its beneficiary (I14).
#[test]
fn a_recent_preemption_without_a_result_is_reported() {
    let open = [receipt(1, "job_a", "job_b", Outcome::Open)];
    assert!(check_receipts(&open, SOON_MS).holds());
    assert_eq!(subject(&check_receipts(&open, LATE_MS)), Some("alc_1"));
    let after_an_hour = 9_000_000;
    assert!(
        check_receipts(&open, after_an_hour).holds(),
        "older receipts are ignored"
    );
    // The node is unreachable, and the owner of the job awaits the process there.
    let late = Timestamp::from_unix_ms(LATE_MS);
    assert!(check_preemptions(open.iter(), |_| true, |_| true, late).holds());
}

/// Two pieces of work do not preempt each other in turn (I14).
#[test]
fn work_that_preempts_each_other_in_turn_is_reported() {
    let alternating: Vec<Receipt> = (0..4)
        .map(|number| {
            let (from, to) = if number % 2 == 0 {
                ("job_a", "job_b")
            } else {
                ("job_b", "job_a")
            };
            receipt(number, from, to, started())
        })
        .collect();
    assert!(check_receipts(&alternating[..3], SOON_MS).holds());
    assert_eq!(
        subject(&check_receipts(&alternating, SOON_MS)),
        Some("job_a")
    );
    // The work was withdrawn, which is no fault of the planner.
    let now = Timestamp::from_unix_ms(SOON_MS);
    assert!(check_preemptions(alternating.iter(), |_| false, |_| false, now).holds());
}

/// A preemption serves its beneficiary (I14).
#[test]
fn a_majority_of_preemptions_without_benefit_is_reported() {
    let not_started = || Outcome::NotStarted {
        at: Timestamp::default(),
        detail: "it is not due the room any more".into(),
    };
    let receipts_with = |without_benefit: u64| -> Vec<Receipt> {
        (0..12)
            .map(|number| {
                let outcome = if number < without_benefit {
                    not_started()
                } else {
                    started()
                };
                receipt(number, "job_a", "job_b", outcome)
            })
            .collect()
    };
    assert!(check_receipts(&receipts_with(6), SOON_MS).holds());
    assert_eq!(
        subject(&check_receipts(&receipts_with(7), SOON_MS)),
        Some("preemptions")
    );
    // The beneficiary was withdrawn, which is no fault of the planner.
    let now = Timestamp::from_unix_ms(SOON_MS);
    assert!(check_preemptions(receipts_with(7).iter(), |_| false, |_| false, now).holds());
}
