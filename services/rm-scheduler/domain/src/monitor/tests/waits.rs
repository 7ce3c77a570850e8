use super::*;
use crate::{
    input::{delta::SnapshotDelta, snapshot::BlockEffect},
    output::plan::{Numbers, Reason, Verdict, Verdicts},
};

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
    fixture: &'a Fixture,
    verdicts: &'a Verdicts,
    sequence: &'a Sequence,
    news: &'a SnapshotDelta,
) -> Asked<'a> {
    Asked {
        sequence,
        snapshot: &fixture.snapshot,
        verdicts,
        unplanned: news,
        settled: true,
        round: 1,
        now_ms: 0,
    }
}

/// (I20)
#[test]
fn a_missing_or_wrong_reason_is_reported() {
    let fixture = fleet(&[("alc_1", 1)]);
    let (quiet, job) = (SnapshotDelta::default(), work_id("job_1"));
    let sequence = in_order(&fixture.snapshot);
    let verdicts_with = |verdict| Verdicts::from([(job.clone(), verdict)]);
    let check = |verdicts: &Verdicts, news: &SnapshotDelta| {
        explanations_are_true(&asked(&fixture, verdicts, &sequence, news))
    };
    let right = verdicts_with(verdict(Reason::AtFairShare, 1));
    let found = check(&right, &quiet);
    assert!(found.holds() && found.examined == 1);
    assert_eq!(blamed(&check(&Verdicts::new(), &quiet)), Some("job_1"));
    let wrong = verdicts_with(verdict(Reason::AtFairShare, 2));
    assert_eq!(blamed(&check(&wrong, &quiet)), Some("job_1"));
    let nonsense = verdicts_with(verdict(Reason::Satisfied, 0));
    assert_eq!(blamed(&check(&nonsense, &quiet)), Some("job_1"));
    let hurried = Asked {
        settled: false,
        ..asked(&fixture, &wrong, &sequence, &quiet)
    };
    assert!(explanations_are_true(&hurried).holds(), "a round is due");
    // No verdict can reflect a change that no round has read.
    let news = SnapshotDelta {
        allocations: [(alc("alc_1"), None)].into(),
        ..SnapshotDelta::default()
    };
    assert!(check(&wrong, &news).holds());
    let everything = check(&right, &SnapshotDelta::everything());
    assert!(matches!(everything.outcome, Found::NotChecked(_)));
}

/// (I21)
#[test]
fn work_that_waits_for_free_space_is_reported_after_three_rounds() {
    let mut fixture = fleet(&[]);
    let quiet = SnapshotDelta::default();
    let verdicts = |reason| Verdicts::from([(work_id("job_1"), verdict(reason, 0))]);
    let short = verdicts(Reason::InsufficientResources);
    let mut memory = Memory::default();
    let mut sequence = in_order(&fixture.snapshot);
    sequence.planned();
    let mut check = |fixture: &Fixture, verdicts: &Verdicts, (round, now_ms)| {
        let report = Asked {
            round,
            now_ms,
            ..asked(fixture, verdicts, &sequence, &quiet)
        };
        work_conserving(&report, &mut memory)
    };
    assert!(check(&fixture, &short, (1, 0)).holds(), "too early");
    assert!(check(&fixture, &short, (3, 10)).holds());
    assert_eq!(blamed(&check(&fixture, &short, (4, 20))), Some("job_1"));
    // A hold with its own reason explains the wait and restarts the count.
    assert!(check(&fixture, &verdicts(Reason::InitializationCap), (9, 30)).holds());
    assert!(check(&fixture, &short, (10, 40)).holds());
    // Without changes no rounds run, so the elapsed time counts.
    assert_eq!(
        blamed(&check(&fixture, &short, (10, 20_000))),
        Some("job_1")
    );
    fixture.demand_mut("job_1").size = Size::memory(5 * GIB);
    assert!(
        check(&fixture, &short, (20, 30_000)).holds(),
        "nothing fits"
    );
    fixture.demand_mut("job_1").size = Size::memory(GIB);
    fixture.block("n00", BlockEffect::Mark);
    fixture.block("n01", BlockEffect::Mark);
    assert!(
        check(&fixture, &short, (30, 50_000)).holds(),
        "all are blocked"
    );
}

/// (I21)
#[test]
fn reserved_or_leaving_space_is_not_free() {
    let mut fixture = fleet(&[]);
    let job = work_id("job_1");
    let opening = |fixture: &Fixture| {
        let holdings = crate::check::Holdings::new(&fixture.snapshot);
        let mut openings = crate::check::CouldPlace::new(&fixture.snapshot, &holdings, |_| true);
        openings.find(&job, "fair")
    };
    assert_eq!(opening(&fixture), Some(node_name("n00")));
    let claims = BTreeMap::from([(work_id("job_2"), vec![node_name("n00")])]);
    fixture.snapshot.carried.claims = claims;
    assert_eq!(opening(&fixture), Some(node_name("n01")));
    let leaving = Allocation {
        leaving: true,
        ..held("job_1", "n01", 1)
    };
    fixture.snapshot.allocations.insert(alc("alc_1"), leaving);
    assert_eq!(opening(&fixture), None);
}

/// (I21)
#[test]
fn a_node_that_is_too_large_for_a_reservation_is_no_opening_for_it() {
    let mut fixture = Fixture::eager().nodes(&[5]);
    fixture.reservation("r", "ann", 3);
    let opening = |fixture: &Fixture| {
        let holdings = crate::check::Holdings::new(&fixture.snapshot);
        let mut openings = crate::check::CouldPlace::new(&fixture.snapshot, &holdings, |_| true);
        openings.find(&work_id("r"), "reserve")
    };
    assert_eq!(opening(&fixture), Some(node_name("n00")));
    fixture.snapshot.tunables.reserve_overage_bytes = Some(GIB);
    assert_eq!(opening(&fixture), None);
}

/// Runs successive checks on a fleet in which all work is reported to lack space.
struct Monitor {
    fixture: Fixture,
    sequence: Sequence,
    memory: Memory,
    verdicts: Verdicts,
}

impl Monitor {
    fn over(fixture: Fixture) -> Self {
        let sequence = in_order(&fixture.snapshot);
        let short = |work: &hayward_vocabulary::WorkId| {
            (work.clone(), verdict(Reason::InsufficientResources, 0))
        };
        Self {
            verdicts: fixture.snapshot.demand.keys().map(short).collect(),
            fixture,
            sequence,
            memory: Memory::default(),
        }
    }

    fn examine(&mut self, round: u64) -> Finding {
        let quiet = SnapshotDelta::default();
        let report = Asked {
            round,
            settled: false,
            now_ms: round * 60_000,
            ..asked(&self.fixture, &self.verdicts, &self.sequence, &quiet)
        };
        work_conserving(&report, &mut self.memory)
    }
}

/// (I21)
#[test]
fn free_space_that_no_round_has_read_is_no_violation() {
    let mut monitor = Monitor::over(fleet(&[]));
    // The allocations of the nodes change between any two rounds.
    for round in 0..9 {
        monitor.sequence.planned();
        for node in ["n00", "n01"] {
            monitor.sequence.stirs(&node_name(node));
        }
        assert!(monitor.examine(round).holds(), "round {round}");
    }
    // The node of the first suspicion changes, so the count starts again.
    monitor.sequence.planned();
    assert!(monitor.examine(10).holds());
    for node in ["n00", "n01"] {
        monitor.sequence.stirs(&node_name(node));
    }
    monitor.sequence.planned();
    assert!(monitor.examine(20).holds());
    assert_eq!(blamed(&monitor.examine(23)), Some("job_1"));
}

/// (I21)
#[test]
fn a_check_tries_a_limited_number_and_later_checks_try_the_rest() {
    let mut fixture = fleet(&[]);
    fixture.demand_mut("job_1").size = Size::memory(5 * GIB);
    for at in 0..500 {
        fixture.job(&format!("job_w{at:03}"), "ann", 5);
    }
    // Only the last work would fit.
    fixture.job("job_z", "ann", 1);
    let mut monitor = Monitor::over(fixture);
    monitor.sequence.planned();
    assert_eq!(monitor.examine(1).examined, 200);
    assert!((2..5).all(|round| monitor.examine(round).holds()));
    assert_eq!(blamed(&monitor.examine(8)), Some("job_z"));
}

/// (I21)
#[test]
fn the_search_is_bounded_on_a_large_fleet_where_nothing_fits() {
    let mut fixture = Fixture::eager();
    for at in 0..6_000 {
        fixture.node_in("default", &format!("n{at:04}"), 4);
    }
    // All sizes differ, so a cached result helps no other work.
    let size = |at: u64| Size::memory(5 * GIB + at);
    for at in 0..60 {
        let id = format!("job_{at:02}");
        fixture.job(&id, "ann", 5);
        fixture.demand_mut(&id).size = size(at);
    }
    let holdings = crate::check::Holdings::new(&fixture.snapshot);
    let mut openings = crate::check::CouldPlace::new(&fixture.snapshot, &holdings, |_| true);
    let mut tried = 0;
    while !openings.is_tired() {
        let id = work_id(&format!("job_{tried:02}"));
        assert_eq!(openings.find(&id, "fair"), None);
        tried += 1;
        assert!(tried < 60, "the steps are not limited");
    }
    assert!(tried > 3, "one piece of work used all steps");
}
