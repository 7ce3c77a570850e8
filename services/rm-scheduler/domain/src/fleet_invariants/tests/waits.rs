//! Live checks of reasons, and of work that waits although a node could take it.

use super::*;
use crate::{
    input::{delta::SnapshotDelta, snapshot::BlockEffect},
    output::plan::{Numbers, Reason, Verdict, Verdicts},
};

/// Returns a verdict on work that wants 2 processes and is entitled to them.
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

fn input<'a>(
    fixture: &'a Fixture,
    verdicts: &'a Verdicts,
    sequence: &'a Sequence,
    unplanned: &'a SnapshotDelta,
) -> WaitCheckInput<'a> {
    WaitCheckInput {
        sequence,
        snapshot: &fixture.snapshot,
        verdicts,
        unplanned,
        settled: true,
        round: 1,
        now_ms: 0,
    }
}

/// Each piece of work has a true reason of the last round (I20).
#[test]
fn a_missing_or_wrong_reason_is_reported() {
    let fixture = fleet(&[("alc_1", 1)]);
    let (no_delta, job) = (SnapshotDelta::default(), work_id("job_1"));
    let sequence = sequence_of(&fixture.snapshot);
    let verdicts_with = |verdict| Verdicts::from([(job.clone(), verdict)]);
    let check = |verdicts: &Verdicts, delta: &SnapshotDelta| {
        check_explanations(&input(&fixture, verdicts, &sequence, delta))
    };
    let right = verdicts_with(verdict(Reason::AtFairShare, 1));
    let found = check(&right, &no_delta);
    assert!(found.holds() && found.examined == 1);
    assert_eq!(subject(&check(&Verdicts::new(), &no_delta)), Some("job_1"));
    let wrong = verdicts_with(verdict(Reason::AtFairShare, 2));
    assert_eq!(subject(&check(&wrong, &no_delta)), Some("job_1"));
    let satisfied_without_process = verdicts_with(verdict(Reason::Satisfied, 0));
    assert_eq!(
        subject(&check(&satisfied_without_process, &no_delta)),
        Some("job_1")
    );
    let unsettled = WaitCheckInput {
        settled: false,
        ..input(&fixture, &wrong, &sequence, &no_delta)
    };
    assert!(check_explanations(&unsettled).holds(), "a round is due");
    // No verdict can reflect a change that no round has read.
    let delta = SnapshotDelta {
        allocations: [(alloc_id("alc_1"), None)].into(),
        ..SnapshotDelta::default()
    };
    assert!(check(&wrong, &delta).holds());
    let everything = check(&right, &SnapshotDelta::everything());
    assert!(matches!(everything.outcome, Found::NotChecked(_)));
}

/// No work that fits waits for more than 3 rounds (I21).
#[test]
fn work_that_waits_for_free_space_is_reported_after_three_rounds() {
    let mut fixture = fleet(&[]);
    let no_delta = SnapshotDelta::default();
    let verdicts = |reason| Verdicts::from([(work_id("job_1"), verdict(reason, 0))]);
    let lacks_space = verdicts(Reason::InsufficientResources);
    let mut memory = Memory::default();
    let mut sequence = sequence_of(&fixture.snapshot);
    sequence.record_round();
    let mut check = |fixture: &Fixture, verdicts: &Verdicts, (round, now_ms)| {
        let report = WaitCheckInput {
            round,
            now_ms,
            ..input(fixture, verdicts, &sequence, &no_delta)
        };
        check_work_conserving(&report, &mut memory)
    };
    assert!(check(&fixture, &lacks_space, (1, 0)).holds(), "too early");
    assert!(check(&fixture, &lacks_space, (3, 10)).holds());
    assert_eq!(
        subject(&check(&fixture, &lacks_space, (4, 20))),
        Some("job_1")
    );
    // A wait for another reason than space is explained, and restarts the count of rounds.
    assert!(check(&fixture, &verdicts(Reason::InitializationCap), (9, 30)).holds());
    assert!(check(&fixture, &lacks_space, (10, 40)).holds());
    // Without changes no rounds run, so the elapsed time counts.
    assert_eq!(
        subject(&check(&fixture, &lacks_space, (10, 20_000))),
        Some("job_1")
    );
    fixture.demand_mut("job_1").size = Size::memory(5 * GIB);
    assert!(
        check(&fixture, &lacks_space, (20, 30_000)).holds(),
        "no node is large enough"
    );
    fixture.demand_mut("job_1").size = Size::memory(GIB);
    fixture.block("n00", BlockEffect::Mark);
    fixture.block("n01", BlockEffect::Mark);
    assert!(
        check(&fixture, &lacks_space, (30, 50_000)).holds(),
        "both nodes are blocked"
    );
}

/// No work that fits waits for more than 3 rounds (I21).
#[test]
fn reserved_or_leaving_space_is_not_free() {
    let mut fixture = fleet(&[]);
    let job = work_id("job_1");
    let find_node = |fixture: &Fixture| {
        let holdings = crate::check::Holdings::new(&fixture.snapshot);
        let mut search = crate::check::NodeSearch::new(&fixture.snapshot, &holdings, |_| true);
        search.find_node(&job, "fair")
    };
    assert_eq!(find_node(&fixture), Some(node_name("n00")));
    let claims = BTreeMap::from([(work_id("job_2"), vec![node_name("n00")])]);
    fixture.snapshot.carried.claims = claims;
    assert_eq!(find_node(&fixture), Some(node_name("n01")));
    let leaving = Allocation {
        leaving: true,
        ..allocation("job_1", "n01", 1)
    };
    fixture
        .snapshot
        .allocations
        .insert(alloc_id("alc_1"), leaving);
    assert_eq!(find_node(&fixture), None);
}

/// No work that fits waits for more than 3 rounds (I21).
#[test]
fn a_reservation_does_not_fit_on_a_node_that_is_too_large() {
    let mut fixture = Fixture::eager().nodes(&[5]);
    fixture.reservation("r", "ann", 3);
    let find_node = |fixture: &Fixture| {
        let holdings = crate::check::Holdings::new(&fixture.snapshot);
        let mut search = crate::check::NodeSearch::new(&fixture.snapshot, &holdings, |_| true);
        search.find_node(&work_id("r"), "reserve")
    };
    assert_eq!(find_node(&fixture), Some(node_name("n00")));
    fixture.snapshot.tunables.reserve_overage_bytes = Some(GIB);
    assert_eq!(find_node(&fixture), None);
}

/// Runs successive checks on a fleet in which all work is reported to lack space.
struct Monitor {
    fixture: Fixture,
    sequence: Sequence,
    memory: Memory,
    verdicts: Verdicts,
}

impl Monitor {
    fn new(fixture: Fixture) -> Self {
        let sequence = sequence_of(&fixture.snapshot);
        let lacks_space = |work: &hayward_vocabulary::WorkId| {
            (work.clone(), verdict(Reason::InsufficientResources, 0))
        };
        Self {
            verdicts: fixture.snapshot.demand.keys().map(lacks_space).collect(),
            fixture,
            sequence,
            memory: Memory::default(),
        }
    }

    fn check(&mut self, round: u64) -> Finding {
        let no_delta = SnapshotDelta::default();
        let report = WaitCheckInput {
            round,
            settled: false,
            now_ms: round * 60_000,
            ..input(&self.fixture, &self.verdicts, &self.sequence, &no_delta)
        };
        check_work_conserving(&report, &mut self.memory)
    }
}

/// No work that fits waits for more than 3 rounds (I21).
#[test]
fn free_space_that_no_round_has_read_is_no_violation() {
    let mut monitor = Monitor::new(fleet(&[]));
    // The allocations of the nodes change between any two rounds.
    for round in 0..9 {
        monitor.sequence.record_round();
        for node in ["n00", "n01"] {
            monitor.sequence.record_change_on_node(&node_name(node));
        }
        assert!(monitor.check(round).holds(), "round {round}");
    }
    // The node of the first suspicion changes, so the count starts again.
    monitor.sequence.record_round();
    assert!(monitor.check(10).holds());
    for node in ["n00", "n01"] {
        monitor.sequence.record_change_on_node(&node_name(node));
    }
    monitor.sequence.record_round();
    assert!(monitor.check(20).holds());
    assert_eq!(subject(&monitor.check(23)), Some("job_1"));
}

/// No work that fits waits for more than 3 rounds (I21).
#[test]
fn a_check_tries_a_limited_number_and_later_checks_try_the_rest() {
    let mut fixture = fleet(&[]);
    fixture.demand_mut("job_1").size = Size::memory(5 * GIB);
    for index in 0..500 {
        fixture.job(&format!("job_w{index:03}"), "ann", 5);
    }
    // Only this last job would fit on a node.
    fixture.job("job_z", "ann", 1);
    let mut monitor = Monitor::new(fixture);
    monitor.sequence.record_round();
    assert_eq!(monitor.check(1).examined, 200);
    assert!((2..5).all(|round| monitor.check(round).holds()));
    assert_eq!(subject(&monitor.check(8)), Some("job_z"));
}

/// No work that fits waits for more than 3 rounds (I21).
#[test]
fn the_search_is_bounded_on_a_large_fleet_where_nothing_fits() {
    let mut fixture = Fixture::eager();
    for index in 0..6_000 {
        fixture.node_in("default", &format!("n{index:04}"), 4);
    }
    // All sizes differ, so a cached result helps no other work.
    let size = |index: u64| Size::memory(5 * GIB + index);
    for index in 0..60 {
        let id = format!("job_{index:02}");
        fixture.job(&id, "ann", 5);
        fixture.demand_mut(&id).size = size(index);
    }
    let holdings = crate::check::Holdings::new(&fixture.snapshot);
    let mut search = crate::check::NodeSearch::new(&fixture.snapshot, &holdings, |_| true);
    let mut tried = 0;
    while !search.is_exhausted() {
        let id = work_id(&format!("job_{tried:02}"));
        assert_eq!(search.find_node(&id, "fair"), None);
        tried += 1;
        assert!(tried < 60, "the steps are not limited");
    }
    assert!(tried > 3, "one piece of work used all steps");
}
