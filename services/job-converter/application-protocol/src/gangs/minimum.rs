//! A gang that was complete keeps its minimum (I13).

use std::collections::BTreeMap;

use super::{formed, lose, policy};
use crate::admission::Outcome;
use crate::core::State as Core;
use crate::frontend::{self, FailureCode, Input, State as Front};
use crate::policy::{Policy, Style, WhenShort};
use crate::task::{Event, State as Task};
use crate::test_fleet::{TestFleet, app, at, id, size, space};
use crate::waiting_gangs::{AdmissionSpace, Answer, Waiting, admit_in_order};

/// Reliability invariant (I13).
#[test]
fn lost_members_are_repaired_first() {
    let mut fleet = formed(policy(Style::Soft));
    assert_eq!(fleet.half().incomplete_gang(), None, "it is whole");
    lose(&mut fleet, "b");
    let incomplete_gang = fleet.half().incomplete_gang().unwrap();
    assert_eq!(
        (
            incomplete_gang.has,
            incomplete_gang.lacks,
            incomplete_gang.formed
        ),
        (1, 1, true)
    );
    assert_eq!(incomplete_gang.until, Some(fleet.now.plus_ms(60_000)));
    assert_eq!(fleet.counters("g"), (2, 0, 1));
    let waiting = fleet.half().waiting_entry(Vec::new()).unwrap();
    assert!(waiting.repair);
    assert_eq!(waiting.wanted[0].count, 1);
    // This gang is older than the repair, and is still served after it.
    let older = Waiting {
        app: app("older"),
        repair: false,
        since: at(-5),
        ..waiting.clone()
    };
    let mut admission_space = AdmissionSpace {
        spaces: vec![space("c", size(2, 0))],
        empty: vec![space("c", size(4, 0))],
        levels: BTreeMap::new(),
        now: fleet.now,
        fence_ms: 60_000,
    };
    let answers = admit_in_order(&[older, waiting], &mut admission_space);
    assert_eq!(answers[0].0, app("app-1"));
    assert!(matches!(answers[1].1, Answer::Admission(Outcome::Wait(_))));

    fleet.pass(vec![space("c", size(2, 0))]);
    assert_eq!(fleet.counters("g"), (3, 0, 1));
    assert_eq!(fleet.half().used(), size(4, 0));
    assert_eq!(fleet.half().incomplete_gang(), None, "it is whole again");
    assert_eq!(
        fleet.half().waiting_entry(Vec::new()).map(|it| it.app),
        None
    );
    let known = |key: &crate::ids::TaskId| fleet.front.tasks[key].state == Task::Bound;
    assert!(
        fleet.placeholders().iter().all(known),
        "both sides know the new one"
    );
    fleet.after(70_000);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
}

/// Reliability invariant (I13).
#[test]
fn a_gang_that_is_not_repaired_in_time_is_released() {
    let mut fleet = formed(Policy::default());
    fleet.task("real", size(2, 0), Some("g"));
    fleet.tick();
    fleet.pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    fleet.apply_to_task("real", Event::Bind);
    lose(&mut fleet, "b");
    fleet.after(59_999);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    fleet.after(1);
    assert_eq!(fleet.states(), (Front::Failing, Core::Failing));
    assert_eq!(fleet.half().incomplete_gang(), None, "it is being released");
    assert!(
        fleet
            .half()
            .allocations
            .values()
            .all(|it| it.released.is_some())
    );
    let failure = fleet.front.head.failure.clone().unwrap();
    assert_eq!(failure.code, FailureCode::GangShort);
    assert!(
        fleet
            .work
            .contains(&frontend::Effect::Stop { task: id("real") })
    );
    assert_eq!(
        fleet.half().used(),
        size(2, 0),
        "on the books until its work has ended"
    );
    fleet.apply(Input::Confirmed { id: id("real") });
    assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
    assert!(fleet.half().allocations.is_empty());
}

/// Reliability invariant (I13).
#[test]
fn a_gang_below_its_minimum_is_released_at_once_if_its_policy_requires_it() {
    let at_once = Policy {
        when_short: WhenShort::ReleaseWhole,
        ..Policy::default()
    };
    let mut fleet = formed(at_once);
    lose(&mut fleet, "a");
    assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
    assert!(fleet.half().allocations.is_empty());
}

/// Reliability invariant (I13).
#[test]
fn a_succeeded_member_is_not_missing() {
    let mut fleet = formed(Policy::default());
    for name in ["r1", "r2"] {
        fleet.task(name, size(2, 0), Some("g"));
    }
    fleet.tick();
    fleet.pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    fleet.apply_to_task("r1", Event::Complete);
    assert!(fleet.half().lost().is_empty());
    fleet.apply_to_task("r2", Event::Complete);
    assert_eq!(fleet.head().state, Core::Completing);
    fleet.after(30_000);
    assert!(fleet.dropped, "the core is done with it");
}

/// Creates a gang whose two running members are lost with both nodes.
fn all_lost(policy: Policy) -> TestFleet {
    let mut fleet = formed(policy);
    send(&mut fleet, &["r1", "r2"], ["a", "b"]);
    lose(&mut fleet, "a");
    lose(&mut fleet, "b");
    fleet
}

/// Submits tasks that replace the placeholders on these nodes.
fn send(fleet: &mut TestFleet, names: &[&str], nodes: [&str; 2]) {
    for name in names {
        fleet.task(name, size(2, 0), Some("g"));
    }
    fleet.tick();
    fleet.pass(nodes.map(|node| space(node, size(0, 0))).to_vec());
    for name in names {
        assert_eq!(fleet.apply_to_task(name, Event::Bind), None);
        end(fleet, name, Task::Bound);
    }
}

fn end(fleet: &mut TestFleet, name: &str, state: Task) {
    assert_eq!(fleet.state(name), state, "{name}");
}

#[test]
fn a_gang_that_lost_all_its_tasks_is_repaired_and_goes_on() {
    let mut fleet = all_lost(Policy::default());
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert!(fleet.half().allocations.is_empty());
    for name in ["r1", "r2"] {
        fleet.apply_to_task(name, Event::Killed);
        end(&mut fleet, name, Task::Killed);
    }
    assert_eq!(
        fleet.half().waiting_entry(Vec::new()).unwrap().wanted[0].count,
        2
    );
    fleet.pass(vec![space("c", size(4, 0))]);
    assert_eq!(fleet.placeholders().len(), 2);
    send(&mut fleet, &["r3", "r4"], ["c", "c"]);
    for name in ["r3", "r4"] {
        assert_eq!(fleet.head().state, Core::Running);
        fleet.apply_to_task(name, Event::Complete);
    }
    assert_eq!(fleet.head().state, Core::Completing);
}

#[test]
fn a_gang_that_lost_all_its_tasks_and_is_not_repaired_has_failed() {
    for when_short in [
        WhenShort::Repair { grace_ms: 5_000 },
        WhenShort::ReleaseWhole,
    ] {
        let mut fleet = all_lost(Policy {
            when_short,
            ..Policy::default()
        });
        fleet.after(5_000);
        assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
        let failure = fleet.front.head.failure.clone().unwrap();
        assert_eq!(failure.code, FailureCode::GangShort);
    }
}

/// Unused allocations have a timeout, and a gang that ends with them has failed.
#[test]
fn a_repaired_gang_without_tasks_fails() {
    let mut fleet = all_lost(policy(Style::Soft));
    fleet.pass(vec![space("c", size(4, 0))]);
    fleet.after(59_999);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    fleet.after(1);
    assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
    let failure = fleet.front.head.failure.clone().unwrap();
    assert_eq!(failure.message, "GangBelowMinimum: members lost of g");
    assert!(fleet.half().allocations.is_empty());
}

#[test]
fn a_gang_with_a_lost_member_does_not_complete() {
    let mut fleet = formed(Policy::default());
    send(&mut fleet, &["r1", "r2"], ["a", "b"]);
    lose(&mut fleet, "b");
    fleet.pass(vec![space("c", size(2, 0))]);
    fleet.apply_to_task("r1", Event::Complete);
    assert_eq!(fleet.head().state, Core::Running);
    fleet.task("r3", size(2, 0), Some("g"));
    fleet.tick();
    fleet.pass(vec![space("c", size(0, 0))]);
    fleet.apply_to_task("r3", Event::Complete);
    assert_eq!(fleet.head().state, Core::Completing);
}

/// The minimum shrinks by exactly one, both before and after the gang is complete.
#[test]
fn a_gang_needs_one_member_less_after_its_owner_returns_a_placeholder() {
    let mut fleet = super::two(Policy::default());
    fleet.apply_to_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(fleet.states(), (Front::Reserving, Core::Accepted));
    fleet.pass(vec![space("a", size(2, 0))]);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.counters("g"), (2, 0, 1));
    assert_eq!(fleet.half().lost(), []);
    lose(&mut fleet, "a");
    assert_eq!(fleet.half().lost()[0].count, 1, "what is left is kept up");

    let mut fleet = formed(Policy::default());
    let one = fleet.placeholders()[0].clone();
    fleet.apply_to_task(one.as_str(), Event::Complete);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.half().used(), size(2, 0));
    assert_eq!(fleet.half().lost(), []);
}

/// The returned placeholder was the last missing one.
#[test]
fn a_gang_runs_when_its_last_missing_placeholder_is_returned() {
    let partial = Policy {
        admission: crate::policy::Admission::Partial,
        ..Policy::default()
    };
    let mut fleet = super::two(partial);
    assert_eq!(fleet.place("tg-app-1-g-0000000000", "a"), None);
    fleet.apply_to_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.placeholders().len(), 1);
}
