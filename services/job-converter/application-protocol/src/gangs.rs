//! Gangs in both state machines: timeouts, replacement, losses and repair.

mod minimum;
mod replacing;

use std::collections::BTreeMap;

use crate::admission::{self, Outcome, Short, Wanted};
use crate::core::{self, State as Core};
use crate::frontend::{FailureCode, Input, State as Front};
use crate::messages::{Termination, ToCore};
use crate::policy::{Admission, Policy, Style};
use crate::reason::Reason;
use crate::task::{Event, State as Task};
use crate::test_fleet::{TestFleet, app, at, group, id, node, size, space};
use crate::waiting_gangs::{AdmissionSpace, Answer, Waiting, admit_in_order};

fn policy(style: Style) -> Policy {
    Policy {
        style,
        placeholder_timeout_ms: 60_000,
        ..Policy::default()
    }
}

/// Creates a gang of two members that is not placed.
fn two(policy: Policy) -> TestFleet {
    TestFleet::new(vec![group("g", 2, size(2, 0))], policy).begun()
}

/// Creates a gang of two members that is complete on two nodes and runs.
fn formed(policy: Policy) -> TestFleet {
    let mut fleet = two(policy);
    fleet.pass(vec![space("a", size(2, 0)), space("b", size(2, 0))]);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    fleet
}

fn lose(fleet: &mut TestFleet, name: &str) {
    fleet.core(core::Input::NodeLost { node: node(name) });
}

#[test]
fn an_atomic_gang_is_placed_at_once_or_not_at_all() {
    let mut fleet = two(Policy::default());
    fleet.pass(vec![space("a", size(3, 0))]);
    assert!(
        fleet.half().allocations.is_empty(),
        "half a gang holds nothing"
    );
    assert_eq!(fleet.states(), (Front::Reserving, Core::Accepted));
    fleet.pass(vec![space("a", size(4, 0))]);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.counters("g"), (2, 0, 0));
}

#[test]
fn partial_mode_keeps_partial_placements() {
    let partial = Policy {
        admission: Admission::Partial,
        ..policy(Style::Soft)
    };
    let mut fleet = two(partial);
    fleet.pass(vec![space("a", size(3, 0))]);
    assert_eq!(fleet.placeholders().len(), 1);
    assert_eq!(fleet.states(), (Front::Reserving, Core::Accepted));
    fleet.pass(vec![space("b", size(3, 0))]);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
}

#[test]
fn a_hard_timeout_fails_and_the_id_stays_in_use() {
    let hard = Policy {
        gang_admission_timeout_ms: 30_000,
        ..policy(Style::Hard)
    };
    let mut fleet = two(hard);
    fleet.task("real", size(1, 0), Some("g"));
    fleet.after(30_000);
    assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
    let failure = fleet.front.head.failure.clone().unwrap();
    assert_eq!(failure.code, FailureCode::GangTimeout);
    assert_eq!(fleet.state("real"), Task::Failed);
    assert_eq!(fleet.front.tasks["real"].failure, Some(failure));
    assert_eq!(fleet.counters("g"), (2, 0, 2));
    let states = fleet.head().log.states();
    assert_eq!(states, [Core::Accepted, Core::Failing, Core::Failed]);
    fleet.after(3 * 24 * 3_600_000);
    assert_eq!(fleet.head().state, Core::Expired);
    assert!(!fleet.dropped);
}

#[test]
fn soft_timeout_runs_without_the_gang_and_spares_real_asks() {
    let partial = Policy {
        admission: Admission::Partial,
        ..policy(Style::Soft)
    };
    let mut fleet = two(partial);
    fleet.pass(vec![space("a", size(2, 0))]);
    fleet.after(60_000);
    assert_eq!(fleet.states(), (Front::Running, Core::Accepted));
    assert!(fleet.half().allocations.is_empty() && fleet.half().pending.is_empty());
    assert_eq!(fleet.counters("g"), (2, 0, 2));
    fleet.task("real", size(1, 0), Some("g"));
    fleet.tick();
    assert_eq!(
        fleet.place("real", "a"),
        None,
        "nobody holds a place for it any more"
    );
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(
        fleet.half().waiting_entry(Vec::new()).map(|it| it.app),
        None
    );
}

#[test]
fn the_admission_timeout_runs_from_acceptance_without_any_placeholder() {
    let soft = Policy {
        gang_admission_timeout_ms: 30_000,
        ..policy(Style::Soft)
    };
    let mut fleet = two(soft);
    let due = fleet.head().timers.next();
    assert_eq!(due, Some(at(1_000 + 30_000)));
    fleet.after(30_000);
    assert_eq!(fleet.states(), (Front::Running, Core::Accepted));
    // A gang that is complete in time is not affected.
    let mut fleet = formed(soft);
    assert_eq!(fleet.head().timers.next(), Some(at(3_000 + 60_000)));
    fleet.after(30_000);
    assert_eq!(fleet.placeholders().len(), 2);
}

#[test]
fn unused_placeholders_end_before_completed() {
    let mut fleet = formed(Policy::default());
    fleet.task("r1", size(2, 0), Some("g"));
    fleet.tick();
    fleet.pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    fleet.apply_to_task("r1", Event::Complete);
    assert_eq!(fleet.head().state, Core::Completing);
    assert_eq!(fleet.placeholders().len(), 1);
    // New work resumes the application.
    fleet.task("r2", size(1, 0), None);
    fleet.tick();
    assert_eq!(fleet.head().state, Core::Running);
    fleet.place("r2", "c");
    fleet.apply_to_task("r2", Event::Complete);
    assert_eq!(fleet.head().state, Core::Completing);
    fleet.mute = true;
    fleet.after(30_000);
    assert_eq!(
        fleet.head().state,
        Core::Completing,
        "it waits for the confirmation"
    );
    fleet.speak();
    assert_eq!(fleet.head().state, Core::Completed);
    assert_eq!(fleet.counters("g"), (2, 1, 1));
    assert!(fleet.dropped);
}

#[test]
fn a_timeout_of_a_running_gang_releases_only_unused_placeholders() {
    let mut fleet = formed(policy(Style::Hard));
    fleet.task("r1", size(2, 0), Some("g"));
    fleet.tick();
    fleet.pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    fleet.after(60_000);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.counters("g"), (2, 1, 1));
    assert_eq!(fleet.half().used(), size(2, 0));
    fleet.after(120_000);
    assert_eq!(
        fleet.states(),
        (Front::Running, Core::Running),
        "its minimum was waived"
    );
}

#[test]
fn a_late_allocation_is_released() {
    let mut fleet = TestFleet::plain().begun();
    fleet.task("t", size(1, 0), None);
    fleet.tick();
    fleet.mute = true;
    fleet.apply_to_task("t", Event::Complete);
    fleet.place("t", "a");
    assert_eq!(fleet.state("t"), Task::Completed);
    fleet.speak();
    assert!(fleet.half().allocations.is_empty());
    let back = ToCore::ReleaseAllocation {
        key: id("t"),
        termination: Termination::StoppedByRm,
    };
    assert!(fleet.to_core.contains(&back));
}

#[test]
fn a_preemption_is_confirmed_once_and_not_echoed() {
    let mut fleet = TestFleet::plain().begun();
    fleet.task("t", size(1, 0), None);
    fleet.tick();
    fleet.place("t", "a");
    fleet.apply_to_task("t", Event::Bind);
    fleet.core(core::Input::Preempt {
        key: id("t"),
        termination: Termination::PreemptedByScheduler,
    });
    assert_eq!(fleet.half().used(), size(1, 0));
    assert_eq!(fleet.state("t"), Task::Killing);
    fleet.to_core.clear();
    assert_eq!(fleet.apply(Input::Confirmed { id: id("t") }), None);
    let confirm = ToCore::Confirm {
        key: id("t"),
        termination: Termination::PreemptedByScheduler,
    };
    assert_eq!(fleet.to_core, [confirm]);
    assert_eq!(
        fleet.apply(Input::Confirmed { id: id("t") }),
        Some(Reason::AlreadySo)
    );
    assert_eq!(fleet.half().used(), size(0, 0));
}

#[test]
fn the_nearest_gang_that_fits_is_named() {
    let wanted = [
        Wanted::from(&group("driver", 1, size(4, 0))),
        Wanted::from(&group("worker", 10, size(2, 0))),
    ];
    let nodes = [space("a", size(7, 0)), space("b", size(7, 0))];
    let refused = admission::feasible(&wanted, &[], &nodes).unwrap_err();
    let missing = 6;
    let group = wanted[1].group.clone();
    assert_eq!(refused.short, Short::Nodes { group, missing });
    let nearest: Vec<u32> = refused.nearest.values().copied().collect();
    assert_eq!(nearest, [1, 4]);
    let mut smaller = wanted.to_vec();
    smaller[1].count = 4;
    assert_eq!(admission::feasible(&smaller, &[], &nodes), Ok(()));
    assert!(refused.to_string().contains("never fits"));
}

#[test]
fn selectors_and_closed_nodes_are_respected() {
    let mut wanted = Wanted::from(&group("g", 1, size(1, 0)));
    wanted.selector.insert("zone".to_owned(), "z".to_owned());
    let mut spaces = [space("a", size(1, 0)), space("b", size(1, 0))];
    let wanted = [wanted];
    let now = |spaces: &[_]| admission::admit(&wanted, &[], spaces, Admission::Atomic);
    assert!(matches!(now(&spaces), Outcome::Wait(_)));
    spaces[1].labels.insert("zone".to_owned(), "z".to_owned());
    let Outcome::Whole(placed) = now(&spaces) else {
        panic!("it fits on b");
    };
    assert_eq!(placed[0].node, node("b"));
    spaces[1].open = false;
    assert!(matches!(now(&spaces), Outcome::Wait(_)));
}

#[test]
fn a_large_gang_is_not_starved_by_small_ones() {
    let gang = |name: &str, since, count| Waiting {
        app: app(name),
        repair: false,
        since: at(since),
        mode: Admission::Atomic,
        path: Vec::new(),
        wanted: vec![Wanted::from(&group("g", count, size(1, 0)))],
    };
    let waiting = [gang("large", 0, 4), gang("small", 10, 1)];
    let answer = |now, cluster| {
        let mut space = AdmissionSpace {
            spaces: vec![space("a", size(3, 0))],
            empty: vec![space("a", size(cluster, 0))],
            levels: BTreeMap::new(),
            now: at(now),
            fence_ms: 1_000,
        };
        admit_in_order(&waiting, &mut space).pop().unwrap().1
    };
    assert!(matches!(
        answer(999, 4),
        Answer::Admission(Outcome::Whole(_))
    ));
    assert_eq!(answer(1_000, 4), Answer::Behind(app("large")));
    // A gang that can never fit is refused and does not block others.
    assert!(matches!(
        answer(1_000, 3),
        Answer::Admission(Outcome::Whole(_))
    ));
}
