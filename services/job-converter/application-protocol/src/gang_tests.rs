//! Tests of gangs in both state machines: admission, timeouts and release.
//!
//! The gang of these tests is the group g with two members of size 2. `counters` returns how many
//! placeholders were created, replaced, and ended otherwise.

mod gang_minimum;
mod placeholder_replacement;

use std::collections::BTreeMap;

use crate::core::{self, State as Core};
use crate::frontend::{FailureCode, State as Front};
use crate::gang_admission::{self, MemberRequest, Outcome, Shortfall};
use crate::gang_policy::{Admission, Policy, Style};
use crate::task::{Event, State as Task};
use crate::test_application::{TestApplication, app, group, node, size, space, time};
use crate::waiting_gangs::{AdmissionPass, Decision, WaitingGang, decide_all};

fn policy(style: Style) -> Policy {
    Policy {
        style,
        placeholder_timeout_ms: 60_000,
        ..Policy::default()
    }
}

/// Creates a gang of two members that is not placed.
fn unplaced_gang(policy: Policy) -> TestApplication {
    TestApplication::new(vec![group("g", 2, size(2, 0))], policy).after_submission()
}

/// Creates a gang of two members that is complete on two nodes and runs.
fn complete_gang(policy: Policy) -> TestApplication {
    let mut test_app = unplaced_gang(policy);
    test_app.run_pass(vec![space("a", size(2, 0)), space("b", size(2, 0))]);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    test_app
}

fn lose_node(test_app: &mut TestApplication, name: &str) {
    test_app.apply_to_core(core::Input::NodeLost { node: node(name) });
}

#[test]
fn an_atomic_gang_is_placed_at_once_or_not_at_all() {
    let mut test_app = unplaced_gang(Policy::default());
    test_app.run_pass(vec![space("a", size(3, 0))]);
    assert!(
        test_app.core().allocations.is_empty(),
        "half a gang holds nothing"
    );
    assert_eq!(test_app.states(), (Front::Reserving, Core::Accepted));
    test_app.run_pass(vec![space("a", size(4, 0))]);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    assert_eq!(test_app.counters("g"), (2, 0, 0));
}

#[test]
fn partial_mode_retains_partial_placements() {
    let partial = Policy {
        admission: Admission::Partial,
        ..policy(Style::Soft)
    };
    let mut test_app = unplaced_gang(partial);
    test_app.run_pass(vec![space("a", size(3, 0))]);
    assert_eq!(test_app.placeholders().len(), 1);
    assert_eq!(test_app.states(), (Front::Reserving, Core::Accepted));
    test_app.run_pass(vec![space("b", size(3, 0))]);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
}

#[test]
fn a_hard_timeout_fails_and_the_id_stays_in_use() {
    let policy = Policy {
        gang_admission_timeout_ms: 30_000,
        ..policy(Style::Hard)
    };
    let mut test_app = unplaced_gang(policy);
    test_app.add_task("real", size(1, 0), Some("g"));
    test_app.advance(30_000);
    assert_eq!(test_app.states(), (Front::Failed, Core::Failed));
    let failure = test_app.front.head.failure.clone().unwrap();
    assert_eq!(failure.code, FailureCode::GangTimeout);
    assert_eq!(test_app.task_state("real"), Task::Failed);
    assert_eq!(test_app.front.tasks["real"].failure, Some(failure));
    assert_eq!(test_app.counters("g"), (2, 0, 2));
    let states = test_app.core_head().log.states();
    assert_eq!(states, [Core::Accepted, Core::Failing, Core::Failed]);
    test_app.advance(3 * 24 * 3_600_000);
    assert_eq!(test_app.core_head().state, Core::Expired);
    assert!(!test_app.dropped);
}

#[test]
fn soft_timeout_runs_without_the_gang_and_spares_real_tasks() {
    let partial = Policy {
        admission: Admission::Partial,
        ..policy(Style::Soft)
    };
    let mut test_app = unplaced_gang(partial);
    test_app.run_pass(vec![space("a", size(2, 0))]);
    test_app.advance(60_000);
    assert_eq!(test_app.states(), (Front::Running, Core::Accepted));
    assert!(test_app.core().allocations.is_empty() && test_app.core().pending.is_empty());
    assert_eq!(test_app.counters("g"), (2, 0, 2));
    test_app.add_task("real", size(1, 0), Some("g"));
    test_app.tick();
    assert_eq!(
        test_app.place_task("real", "a"),
        None,
        "no placeholder is left, so the task is placed normally"
    );
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    assert_eq!(
        test_app.core().waiting_entry(Vec::new()).map(|it| it.app),
        None
    );
}

#[test]
fn the_admission_timeout_runs_from_acceptance_without_any_placeholder() {
    let soft = Policy {
        gang_admission_timeout_ms: 30_000,
        ..policy(Style::Soft)
    };
    let mut test_app = unplaced_gang(soft);
    let due = test_app.core_head().timers.next();
    assert_eq!(due, Some(time(1_000 + 30_000)));
    test_app.advance(30_000);
    assert_eq!(test_app.states(), (Front::Running, Core::Accepted));
    // A gang that is complete in time is not affected.
    let mut test_app = complete_gang(soft);
    assert_eq!(
        test_app.core_head().timers.next(),
        Some(time(3_000 + 60_000))
    );
    test_app.advance(30_000);
    assert_eq!(test_app.placeholders().len(), 2);
}

#[test]
fn unused_placeholders_end_before_completed() {
    let mut test_app = complete_gang(Policy::default());
    test_app.add_task("r1", size(2, 0), Some("g"));
    test_app.tick();
    test_app.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    test_app.apply_to_task("r1", Event::Complete);
    assert_eq!(test_app.core_head().state, Core::Completing);
    assert_eq!(test_app.placeholders().len(), 1);
    // New work resumes the application.
    test_app.add_task("r2", size(1, 0), None);
    test_app.tick();
    assert_eq!(test_app.core_head().state, Core::Running);
    test_app.place_task("r2", "c");
    test_app.apply_to_task("r2", Event::Complete);
    assert_eq!(test_app.core_head().state, Core::Completing);
    test_app.messages_paused = true;
    test_app.advance(30_000);
    assert_eq!(
        test_app.core_head().state,
        Core::Completing,
        "the core waits for the confirmation"
    );
    test_app.resume_messages();
    assert_eq!(test_app.core_head().state, Core::Completed);
    assert_eq!(test_app.counters("g"), (2, 1, 1));
    assert!(test_app.dropped);
}

#[test]
fn a_timeout_of_a_running_gang_releases_only_unused_placeholders() {
    let mut test_app = complete_gang(policy(Style::Hard));
    test_app.add_task("r1", size(2, 0), Some("g"));
    test_app.tick();
    test_app.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    test_app.advance(60_000);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    assert_eq!(test_app.counters("g"), (2, 1, 1));
    assert_eq!(test_app.core().used(), size(2, 0));
    test_app.advance(120_000);
    assert_eq!(
        test_app.states(),
        (Front::Running, Core::Running),
        "the minimum of the group was waived"
    );
}

#[test]
fn the_nearest_gang_that_fits_is_named() {
    let wanted = [
        MemberRequest::from(&group("driver", 1, size(4, 0))),
        MemberRequest::from(&group("worker", 10, size(2, 0))),
    ];
    let nodes = [space("a", size(7, 0)), space("b", size(7, 0))];
    let refused = gang_admission::check_feasible(&wanted, &[], &nodes).unwrap_err();
    let missing = 6;
    let group = wanted[1].group.clone();
    assert_eq!(refused.shortfall, Shortfall::Nodes { group, missing });
    let nearest: Vec<u32> = refused.nearest.values().copied().collect();
    assert_eq!(nearest, [1, 4]);
    let mut smaller = wanted.to_vec();
    smaller[1].count = 4;
    assert_eq!(
        gang_admission::check_feasible(&smaller, &[], &nodes),
        Ok(())
    );
    assert!(refused.to_string().contains("never fits"));
}

#[test]
fn selectors_and_closed_nodes_are_respected() {
    let mut wanted = MemberRequest::from(&group("g", 1, size(1, 0)));
    wanted.selector.insert("zone".to_owned(), "z".to_owned());
    let mut spaces = [space("a", size(1, 0)), space("b", size(1, 0))];
    let wanted = [wanted];
    let admit = |spaces: &[_]| gang_admission::admit(&wanted, &[], spaces, Admission::Atomic);
    assert!(matches!(admit(&spaces), Outcome::Waiting(_)));
    spaces[1].labels.insert("zone".to_owned(), "z".to_owned());
    let Outcome::Complete(placed) = admit(&spaces) else {
        panic!("the gang fits on b");
    };
    assert_eq!(placed[0].node, node("b"));
    spaces[1].open = false;
    assert!(matches!(admit(&spaces), Outcome::Waiting(_)));
}

#[test]
fn a_large_gang_is_not_starved_by_small_ones() {
    let gang = |name: &str, since, count| WaitingGang {
        app: app(name),
        is_repair: false,
        since: time(since),
        mode: Admission::Atomic,
        queue_path: Vec::new(),
        wanted: vec![MemberRequest::from(&group("g", count, size(1, 0)))],
    };
    let waiting = [gang("large", 0, 4), gang("small", 10, 1)];
    let decision = |now, node_size| {
        let mut pass = AdmissionPass {
            spaces: vec![space("a", size(3, 0))],
            empty: vec![space("a", size(node_size, 0))],
            levels: BTreeMap::new(),
            now: time(now),
            overtaking_limit_ms: 1_000,
        };
        decide_all(&waiting, &mut pass).pop().unwrap().1
    };
    assert!(matches!(
        decision(999, 4),
        Decision::Admission(Outcome::Complete(_))
    ));
    assert_eq!(decision(1_000, 4), Decision::WaitsBehind(app("large")));
    // A gang that can never fit is refused and does not block others.
    assert!(matches!(
        decision(1_000, 3),
        Decision::Admission(Outcome::Complete(_))
    ));
}
