use std::collections::BTreeMap;

use hayward_vocabulary::invariant::{Finding, Outcome as Found};
use hayward_vocabulary::{AllocationId, NodeName, Outcome, Receipt, Size, Timestamp};

use super::*;
use crate::news::News;
use crate::plan::{Numbers, Reason, Verdict, Verdicts};
use crate::snapshot::queues::{Gang, Queued};
use crate::snapshot::{Allocation, BlockEffect, Snapshot};
use crate::world::{GIB, World, node_name, work_id};

fn alc(text: &str) -> AllocationId {
    AllocationId::new(text).unwrap()
}

/// A job on node `n00` with an allocation of so many quanta for each id.
fn fleet(orders: &[(&str, u64)]) -> World {
    let mut world = World::eager().nodes(&[4, 4]);
    world.job("job_1", "ann", 1);
    for (id, order) in orders {
        world
            .snapshot
            .allocations
            .insert(alc(id), held("job_1", "n00", *order));
    }
    world
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

/// As if everything came in this order: nodes, then allocations.
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

/// Whose fault it is said to be, first of all.
fn blamed(finding: &Finding) -> Option<&str> {
    match &finding.outcome {
        Found::Violated { evidence, .. } => Some(&evidence[0].subject),
        _ => None,
    }
}

#[test]
fn i2_a_node_that_has_given_out_more_than_it_has() {
    let world = fleet(&[("alc_1", 2), ("alc_2", 2)]);
    let sequence = in_order(&world.snapshot);
    let found = no_over_commit(&world.snapshot, &sequence);
    assert!(found.holds() && found.examined == 2);

    let mut over = fleet(&[("alc_1", 2), ("alc_2", 2), ("alc_3", 1)]);
    let sequence = in_order(&over.snapshot);
    assert_eq!(
        blamed(&no_over_commit(&over.snapshot, &sequence)),
        Some("n00")
    );

    // A dimension that is no part of the quantum counts as well.
    over.snapshot.allocations.remove(&alc("alc_3"));
    for held in over.snapshot.allocations.values_mut() {
        held.size.cpu_milli = 600_000;
    }
    assert_eq!(
        blamed(&no_over_commit(&over.snapshot, &sequence)),
        Some("n00")
    );
}

#[test]
fn i2_a_node_that_shrank_is_nobodys_fault_until_something_is_granted_there() {
    let mut world = fleet(&[("alc_1", 2), ("alc_2", 2)]);
    let mut sequence = in_order(&world.snapshot);
    let before = world.node("n00").clone();
    world.node("n00").capacity.memory_bytes = 3 * GIB;
    sequence.node(&node_name("n00"), Some(&before), world.node("n00"));
    assert!(no_over_commit(&world.snapshot, &sequence).holds());

    let late = held("job_1", "n00", 1);
    world.snapshot.allocations.insert(alc("alc_3"), late);
    sequence.allocation(&alc("alc_3"), true);
    assert_eq!(
        blamed(&no_over_commit(&world.snapshot, &sequence)),
        Some("n00")
    );
}

#[test]
fn i2_what_a_node_lost_is_not_given_out_by_what_takes_none_of_it() {
    let mut world = fleet(&[("alc_1", 2)]);
    let first = alc("alc_1");
    let taken = world.snapshot.allocations.get_mut(&first).unwrap();
    (taken.size.gpu_milli, taken.gpus) = (1_000, vec![0]);
    world.node("n00").capacity.gpu_milli = 1_000;
    let mut sequence = in_order(&world.snapshot);
    let before = world.node("n00").clone();
    world.node("n00").capacity.gpu_milli = 0;
    sequence.node(&node_name("n00"), Some(&before), world.node("n00"));
    let late = held("job_1", "n00", 1);
    world.snapshot.allocations.insert(alc("alc_2"), late);
    sequence.allocation(&alc("alc_2"), true);
    assert!(no_over_commit(&world.snapshot, &sequence).holds());

    let mut late = held("job_1", "n00", 1);
    (late.size.gpu_milli, late.gpus) = (500, vec![0]);
    world.snapshot.allocations.insert(alc("alc_3"), late);
    sequence.allocation(&alc("alc_3"), true);
    let found = no_over_commit(&world.snapshot, &sequence);
    assert_eq!(blamed(&found), Some("n00"));
}

#[test]
fn i16_what_lands_on_a_blocked_node() {
    let mut world = fleet(&[("alc_1", 1)]);
    let mut sequence = in_order(&world.snapshot);
    let before = world.node("n00").clone();
    world.block("n00", BlockEffect::Mark);
    sequence.node(&node_name("n00"), Some(&before), world.node("n00"));
    let found = blocked_means_blocked(&world.snapshot, &sequence);
    assert!(found.holds() && found.examined == 1, "it was there before");

    let late = held("job_1", "n00", 1);
    world.snapshot.allocations.insert(alc("alc_2"), late);
    sequence.allocation(&alc("alc_2"), true);
    let found = blocked_means_blocked(&world.snapshot, &sequence);
    assert_eq!(blamed(&found), Some("alc_2"));

    // Said again, a block is no newer.
    let again = world.node("n00").clone();
    sequence.node(&node_name("n00"), Some(&again), world.node("n00"));
    let found = blocked_means_blocked(&world.snapshot, &sequence);
    assert_eq!(blamed(&found), Some("alc_2"));
}

#[test]
fn a_new_policy_is_held_against_nobody() {
    let world = fleet(&[("alc_1", 2), ("alc_2", 2), ("alc_3", 1)]);
    let mut sequence = in_order(&world.snapshot);
    sequence.anew(&world.snapshot);
    assert!(no_over_commit(&world.snapshot, &sequence).holds());
}

#[test]
fn i10_books_that_differ() {
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

#[test]
fn i13_a_gang_that_stays_torn() {
    let mut world = fleet(&[("alc_1", 1)]);
    let gang = |min| {
        let name = "workers".to_owned();
        let queued = Queued {
            gang: Some(Gang { name, min }),
            ..Queued::default()
        };
        Some(Box::new(queued))
    };
    let mut memory = Memory::default();
    world.of("job_1").queued = gang(1);
    assert!(
        gangs_are_whole(&world.snapshot, |_| 1, &mut memory, 0).holds(),
        "whole"
    );
    world.of("job_1").queued = gang(2);
    let granted = std::cell::Cell::new(1);
    let mut look =
        |world: &World, now| gangs_are_whole(&world.snapshot, |_| granted.get(), &mut memory, now);
    assert!(look(&world, 1_000).holds(), "it has its grace");
    let found = look(&world, 121_000);
    assert_eq!(blamed(&found), Some("job_1"));
    // It had two once: how long its repair may take is not known here.
    granted.set(2);
    assert!(look(&world, 121_500).holds());
    granted.set(1);
    // What is being released is not held back.
    world
        .snapshot
        .allocations
        .get_mut(&alc("alc_1"))
        .unwrap()
        .leaving = true;
    assert!(look(&world, 122_000).holds());
    world.snapshot.allocations.clear();
    assert!(look(&world, 300_000).holds(), "it holds nothing");
}

fn receipt(number: u64, (from, to): (&str, &str), outcome: Outcome) -> Receipt {
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

#[test]
fn i14_room_that_is_taken_back_in_vain_or_in_turn() {
    let look = |all: &[Receipt], now| {
        preemption_is_justified(
            all.iter(),
            |_| true,
            |_| false,
            Timestamp::from_unix_ms(now),
        )
    };
    let open = [receipt(1, ("job_a", "job_b"), Outcome::Open)];
    assert!(look(&open, 1_100_000).holds());
    assert_eq!(blamed(&look(&open, 3_000_000)), Some("alc_1"));
    assert!(look(&open, 9_000_000).holds(), "that is history");
    // Its node is silent, and its submitter wants to wait.
    let late = Timestamp::from_unix_ms(3_000_000);
    assert!(preemption_is_justified(open.iter(), |_| true, |_| true, late).holds());

    let turns: Vec<Receipt> = (0..4)
        .map(|at| {
            let pair = if at % 2 == 0 {
                ("job_a", "job_b")
            } else {
                ("job_b", "job_a")
            };
            receipt(at, pair, started())
        })
        .collect();
    assert!(look(&turns[..3], 1_100_000).holds());
    assert_eq!(blamed(&look(&turns, 1_100_000)), Some("job_a"));

    let in_vain = || Outcome::NotStarted {
        at: Timestamp::default(),
        detail: "it is not due the room any more".into(),
    };
    let many = |vain: u64| -> Vec<Receipt> {
        (0..12)
            .map(|at| {
                let outcome = if at < vain { in_vain() } else { started() };
                receipt(at, ("job_a", "job_b"), outcome)
            })
            .collect()
    };
    assert!(look(&many(6), 1_100_000).holds());
    assert_eq!(blamed(&look(&many(7), 1_100_000)), Some("preemptions"));
    // Who asked was withdrawn meanwhile: that is no fault of the planner's.
    let now = Timestamp::from_unix_ms(1_100_000);
    assert!(preemption_is_justified(many(7).iter(), |_| false, |_| false, now).holds());
    assert!(preemption_is_justified(turns.iter(), |_| false, |_| false, now).holds());
}

fn verdict(reason: Reason, current_processes: u64) -> Box<Verdict> {
    Box::new(Verdict {
        reason,
        waits: current_processes == 0,
        refused: false,
        class: Some("fair".into()),
        detail: String::new(),
        numbers: Numbers {
            counted_processes: 2,
            wanted_processes: 2,
            current_processes,
            ..Numbers::default()
        },
        also: Vec::new(),
        unblock: None,
    })
}

fn asked<'a>(
    world: &'a World,
    (verdicts, sequence): (&'a Verdicts, &'a Sequence),
    news: &'a News,
) -> Asked<'a> {
    Asked {
        sequence,
        snapshot: &world.snapshot,
        verdicts,
        unplanned: news,
        settled: true,
        round: 1,
        now_ms: 0,
    }
}

#[test]
fn i20_reasons_that_are_missing_or_wrong() {
    let world = fleet(&[("alc_1", 1)]);
    let (quiet, job) = (News::default(), work_id("job_1"));
    let sequence = in_order(&world.snapshot);
    let said = |verdict| Verdicts::from([(job.clone(), verdict)]);
    let look = |verdicts: &Verdicts, news: &News| {
        explanations_are_true(&asked(&world, (verdicts, &sequence), news))
    };
    let right = said(verdict(Reason::AtFairShare, 1));
    let found = look(&right, &quiet);
    assert!(found.holds() && found.examined == 1);
    assert_eq!(blamed(&look(&Verdicts::new(), &quiet)), Some("job_1"));
    let wrong = said(verdict(Reason::AtFairShare, 2));
    assert_eq!(blamed(&look(&wrong, &quiet)), Some("job_1"));
    let nonsense = said(verdict(Reason::Satisfied, 0));
    assert_eq!(blamed(&look(&nonsense, &quiet)), Some("job_1"));
    let hurried = Asked {
        settled: false,
        ..asked(&world, (&wrong, &sequence), &quiet)
    };
    assert!(explanations_are_true(&hurried).holds(), "a round is due");
    // What no round has seen cannot have been explained.
    let news = News {
        allocations: [(alc("alc_1"), None)].into(),
        ..News::default()
    };
    assert!(look(&wrong, &news).holds());
    let everything = look(&right, &News::everything());
    assert!(matches!(everything.outcome, Found::NotChecked(_)));
}

#[test]
fn i21_work_that_waits_for_room_that_is_there() {
    let mut world = fleet(&[]);
    let quiet = News::default();
    let verdicts = |reason| Verdicts::from([(work_id("job_1"), verdict(reason, 0))]);
    let short = verdicts(Reason::InsufficientResources);
    let mut memory = Memory::default();
    let mut sequence = in_order(&world.snapshot);
    sequence.planned();
    let mut look = |world: &World, verdicts: &Verdicts, (round, now_ms)| {
        let asked = Asked {
            round,
            now_ms,
            ..asked(world, (verdicts, &sequence), &quiet)
        };
        work_conserving(&asked, &mut memory)
    };
    assert!(look(&world, &short, (1, 0)).holds(), "one round is none");
    assert!(look(&world, &short, (3, 10)).holds());
    assert_eq!(blamed(&look(&world, &short, (4, 20))), Some("job_1"));
    // A named hold explains it, and begins the count anew.
    assert!(look(&world, &verdicts(Reason::InitializationCap), (9, 30)).holds());
    assert!(look(&world, &short, (10, 40)).holds());
    // Without news there are no rounds to count.
    assert_eq!(blamed(&look(&world, &short, (10, 20_000))), Some("job_1"));
    world.of("job_1").size = Size::memory(5 * GIB);
    assert!(look(&world, &short, (20, 30_000)).holds(), "nothing fits");
    world.of("job_1").size = Size::memory(GIB);
    world.block("n00", BlockEffect::Mark);
    world.block("n01", BlockEffect::Mark);
    assert!(
        look(&world, &short, (30, 50_000)).holds(),
        "all are blocked"
    );
}

#[test]
fn i21_room_that_is_promised_or_being_made_is_not_free() {
    let mut world = fleet(&[]);
    let job = work_id("job_1");
    let opening = |world: &World| {
        let holdings = crate::check::Holdings::of(&world.snapshot);
        let mut openings = crate::check::Openings::of(&world.snapshot, &holdings, |_| true);
        openings.find(&job, "fair")
    };
    assert_eq!(opening(&world), Some(node_name("n00")));
    let claims = BTreeMap::from([(work_id("job_2"), vec![node_name("n00")])]);
    world.snapshot.carried.claims = claims;
    assert_eq!(opening(&world), Some(node_name("n01")));
    let leaving = Allocation {
        leaving: true,
        ..held("job_1", "n01", 1)
    };
    world.snapshot.allocations.insert(alc("alc_1"), leaving);
    assert_eq!(opening(&world), None);
}

/// One job that waits, said to be short of room, and one look after the other.
struct Lookout {
    world: World,
    sequence: Sequence,
    memory: Memory,
    verdicts: Verdicts,
}

impl Lookout {
    fn over(world: World) -> Self {
        let sequence = in_order(&world.snapshot);
        let short = |work: &hayward_vocabulary::WorkId| {
            (work.clone(), verdict(Reason::InsufficientResources, 0))
        };
        Self {
            verdicts: world.snapshot.demand.keys().map(short).collect(),
            world,
            sequence,
            memory: Memory::default(),
        }
    }

    fn look(&mut self, round: u64) -> Finding {
        let quiet = News::default();
        let said = (&self.verdicts, &self.sequence);
        let asked = Asked {
            round,
            settled: false,
            now_ms: round * 60_000,
            ..asked(&self.world, said, &quiet)
        };
        work_conserving(&asked, &mut self.memory)
    }
}

#[test]
fn i21_room_that_no_round_has_seen_is_held_against_nobody() {
    let mut lookout = Lookout::over(fleet(&[]));
    // What stands on the nodes changes between any two rounds.
    for round in 0..9 {
        lookout.sequence.planned();
        for node in ["n00", "n01"] {
            lookout.sequence.stirs(&node_name(node));
        }
        assert!(lookout.look(round).holds(), "round {round}");
    }
    // The node of the first suspicion is taken and freed: it begins anew with another tick.
    lookout.sequence.planned();
    assert!(lookout.look(10).holds());
    for node in ["n00", "n01"] {
        lookout.sequence.stirs(&node_name(node));
    }
    lookout.sequence.planned();
    assert!(lookout.look(20).holds());
    assert_eq!(blamed(&lookout.look(23)), Some("job_1"));
}

#[test]
fn i21_no_look_tries_more_than_so_many_and_in_the_end_each_is_tried() {
    let mut world = fleet(&[]);
    world.of("job_1").size = Size::memory(5 * GIB);
    for at in 0..500 {
        world.job(&format!("job_w{at:03}"), "ann", 5);
    }
    // The last in line would fit.
    world.job("job_z", "ann", 1);
    let mut lookout = Lookout::over(world);
    lookout.sequence.planned();
    assert_eq!(lookout.look(1).examined, 200);
    assert!((2..5).all(|round| lookout.look(round).holds()));
    assert_eq!(blamed(&lookout.look(8)), Some("job_z"));
}

#[test]
fn i21_what_fits_nowhere_ends_in_time_on_a_large_fleet() {
    let mut world = World::eager();
    for at in 0..6_000 {
        world.node_in("default", &format!("n{at:04}"), 4);
    }
    // Each of its own size, so that nothing that is remembered of one helps another.
    let size = |at: u64| Size::memory(5 * GIB + at);
    for at in 0..60 {
        let id = format!("job_{at:02}");
        world.job(&id, "ann", 5);
        world.of(&id).size = size(at);
    }
    let holdings = crate::check::Holdings::of(&world.snapshot);
    let mut openings = crate::check::Openings::of(&world.snapshot, &holdings, |_| true);
    let mut tried = 0;
    while !openings.is_tired() {
        let id = work_id(&format!("job_{tried:02}"));
        assert_eq!(openings.find(&id, "fair"), None);
        tried += 1;
        assert!(tried < 60, "there is no end");
    }
    assert!(tried > 3, "one takes it all");
}
