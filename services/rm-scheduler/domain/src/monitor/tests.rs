mod node_space;
mod waits;

use hayward_vocabulary::invariant::{Finding, Outcome as Found};
use hayward_vocabulary::{AllocationId, Outcome, Receipt, Size, Timestamp};

use super::*;
use crate::{
    input::{
        queues::{Gang, Queued},
        snapshot::{Allocation, Snapshot},
    },
    tests::fixture::{Fixture, GIB, node_name, work_id},
};

fn alc(text: &str) -> AllocationId {
    AllocationId::new(text).unwrap()
}

/// Returns a fleet with a job on node `n00` that has these allocations, given by id and quanta.
fn fleet(orders: &[(&str, u64)]) -> Fixture {
    let mut fixture = Fixture::eager().nodes(&[4, 4]);
    fixture.job("job_1", "ann", 1);
    for (id, order) in orders {
        fixture
            .snapshot
            .allocations
            .insert(alc(id), held("job_1", "n00", *order));
    }
    fixture
}

fn held(work: &str, node: &str, order: u64) -> Allocation {
    Allocation {
        work: work_id(work),
        kind: hayward_vocabulary::WorkKind::Job,
        user: "ann".parse().unwrap(),
        class: "fair".into(),
        node: node_name(node),
        order,
        size: Size::memory(order * GIB),
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
fn in_order(snapshot: &Snapshot) -> Sequence {
    let mut sequence = Sequence::default();
    for (name, node) in &snapshot.nodes {
        sequence.node(name, None, node);
    }
    for id in snapshot.allocations.keys() {
        sequence.allocation(id, true);
    }
    sequence
}

/// Returns the subject of the first evidence, or `None` if the invariant holds.
fn blamed(finding: &Finding) -> Option<&str> {
    match &finding.outcome {
        Found::Violated { evidence, .. } => Some(&evidence[0].subject),
        _ => None,
    }
}

/// (I10)
#[test]
fn accounts_that_differ_from_the_allocations_are_reported() {
    let (ann, n1): (_, NodeName) = ("ann".parse().unwrap(), node_name("n1"));
    let book = |name, order| {
        let mut book = Book::new(name);
        book.add(&ann, "fair", &n1, order);
        book
    };
    let live = book("live", 3);
    assert!(accounts_balance(&live, &[book("the index", 3)]).holds());
    let found = accounts_balance(&live, &[book("the index", 3), book("the snapshot", 2)]);
    assert_eq!(blamed(&found), Some("ann"));
    assert_eq!(
        blamed(&accounts_balance(&live, &[Book::new("empty")])),
        Some("ann")
    );
    assert_eq!(
        blamed(&accounts_balance(&Book::new("live"), &[live])),
        Some("ann")
    );
}

/// (I13)
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
        gangs_are_whole(&fixture.snapshot, |_| 1, &mut memory, 0).holds(),
        "whole"
    );
    fixture.demand_mut("job_1").queued = gang(2);
    let granted = std::cell::Cell::new(1);
    let mut check = |fixture: &Fixture, now| {
        gangs_are_whole(&fixture.snapshot, |_| granted.get(), &mut memory, now)
    };
    assert!(check(&fixture, 1_000).holds(), "within the grace time");
    let found = check(&fixture, 121_000);
    assert_eq!(blamed(&found), Some("job_1"));
    // The gang had two processes before, so it was complete and is not checked here.
    granted.set(2);
    assert!(check(&fixture, 121_500).holds());
    granted.set(1);
    // A gang that is being released is no violation.
    fixture
        .snapshot
        .allocations
        .get_mut(&alc("alc_1"))
        .unwrap()
        .leaving = true;
    assert!(check(&fixture, 122_000).holds());
    fixture.snapshot.allocations.clear();
    assert!(check(&fixture, 300_000).holds(), "it holds nothing");
}

fn receipt(number: u64, from: &str, to: &str, outcome: Outcome) -> Receipt {
    Receipt {
        round: number,
        at: Timestamp::from_unix_ms(1_000_000 + i64::try_from(number).unwrap()),
        allocation: alc(&format!("alc_{number}")),
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

fn started() -> Outcome {
    Outcome::StartedElsewhere {
        allocation: alc("alc_0"),
        node: node_name("n2"),
    }
}

/// (I14)
#[test]
fn preemption_in_vain_or_in_alternation_is_reported() {
    let check = |all: &[Receipt], now| {
        preemption_is_justified(
            all.iter(),
            |_| true,
            |_| false,
            Timestamp::from_unix_ms(now),
        )
    };
    let open = [receipt(1, "job_a", "job_b", Outcome::Open)];
    assert!(check(&open, 1_100_000).holds());
    assert_eq!(blamed(&check(&open, 3_000_000)), Some("alc_1"));
    assert!(
        check(&open, 9_000_000).holds(),
        "older receipts are ignored"
    );
    // The node is unreachable, and its job waits for it.
    let late = Timestamp::from_unix_ms(3_000_000);
    assert!(preemption_is_justified(open.iter(), |_| true, |_| true, late).holds());

    let alternating: Vec<Receipt> = (0..4)
        .map(|at| {
            let (from, to) = if at % 2 == 0 {
                ("job_a", "job_b")
            } else {
                ("job_b", "job_a")
            };
            receipt(at, from, to, started())
        })
        .collect();
    assert!(check(&alternating[..3], 1_100_000).holds());
    assert_eq!(blamed(&check(&alternating, 1_100_000)), Some("job_a"));

    let in_vain = || Outcome::NotStarted {
        at: Timestamp::default(),
        detail: "it is not due the room any more".into(),
    };
    let many = |vain: u64| -> Vec<Receipt> {
        (0..12)
            .map(|at| {
                let outcome = if at < vain { in_vain() } else { started() };
                receipt(at, "job_a", "job_b", outcome)
            })
            .collect()
    };
    assert!(check(&many(6), 1_100_000).holds());
    assert_eq!(blamed(&check(&many(7), 1_100_000)), Some("preemptions"));
    // The beneficiary was withdrawn, which is no fault of the planner.
    let now = Timestamp::from_unix_ms(1_100_000);
    assert!(preemption_is_justified(many(7).iter(), |_| false, |_| false, now).holds());
    assert!(preemption_is_justified(alternating.iter(), |_| false, |_| false, now).holds());
}
