//! A gang that was complete keeps its minimum (I13).

use std::collections::BTreeMap;

use super::{complete_gang, lose_node, policy};
use crate::admission::Outcome;
use crate::core::State as Core;
use crate::frontend::{self, FailureCode, Input, State as Front};
use crate::policy::{Policy, Style, WhenShort};
use crate::task::{Event, State as Task};
use crate::test_fleet::{TestFleet, app, id, size, space, time};
use crate::waiting_gangs::{AdmissionPass, Decision, WaitingGang, decide_all};

/// Reliability invariant (I13).
#[test]
fn lost_members_are_repaired_first() {
    let mut fleet = complete_gang(policy(Style::Soft));
    assert_eq!(fleet.core_app().incomplete_gang(), None, "it is whole");
    lose_node(&mut fleet, "b");
    let gang = fleet.core_app().incomplete_gang().unwrap();
    assert_eq!((gang.has, gang.lacks, gang.formed), (1, 1, true));
    assert_eq!(gang.until, Some(fleet.now.plus_ms(60_000)));
    assert_eq!(fleet.counters("g"), (2, 0, 1));
    let waiting = fleet.core_app().waiting_entry(Vec::new()).unwrap();
    assert!(waiting.repair);
    assert_eq!(waiting.wanted[0].count, 1);
    // This gang is older than the repair, and is still served after it.
    let older = WaitingGang {
        app: app("older"),
        repair: false,
        since: time(-5),
        ..waiting.clone()
    };
    let mut pass = AdmissionPass {
        spaces: vec![space("c", size(2, 0))],
        empty: vec![space("c", size(4, 0))],
        levels: BTreeMap::new(),
        now: fleet.now,
        fence_ms: 60_000,
    };
    let decisions = decide_all(&[older, waiting], &mut pass);
    assert_eq!(decisions[0].0, app("app-1"));
    assert!(matches!(
        decisions[1].1,
        Decision::Admission(Outcome::Waiting(_))
    ));

    fleet.run_pass(vec![space("c", size(2, 0))]);
    assert_eq!(fleet.counters("g"), (3, 0, 1));
    assert_eq!(fleet.core_app().used(), size(4, 0));
    assert_eq!(
        fleet.core_app().incomplete_gang(),
        None,
        "it is whole again"
    );
    assert_eq!(
        fleet.core_app().waiting_entry(Vec::new()).map(|it| it.app),
        None
    );
    let is_bound = |key: &crate::ids::TaskId| fleet.front.tasks[key].state == Task::Bound;
    assert!(
        fleet.placeholders().iter().all(is_bound),
        "both sides know the new one"
    );
    fleet.advance(70_000);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
}

/// Reliability invariant (I13).
#[test]
fn a_gang_that_is_not_repaired_in_time_is_released() {
    let mut fleet = complete_gang(Policy::default());
    fleet.add_task("real", size(2, 0), Some("g"));
    fleet.tick();
    fleet.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    fleet.apply_to_task("real", Event::Bind);
    lose_node(&mut fleet, "b");
    fleet.advance(59_999);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    fleet.advance(1);
    assert_eq!(fleet.states(), (Front::Failing, Core::Failing));
    assert_eq!(
        fleet.core_app().incomplete_gang(),
        None,
        "it is being released"
    );
    assert!(
        fleet
            .core_app()
            .allocations
            .values()
            .all(|it| it.released.is_some())
    );
    let failure = fleet.front.head.failure.clone().unwrap();
    assert_eq!(failure.code, FailureCode::GangShort);
    assert!(
        fleet
            .effects
            .contains(&frontend::Effect::Stop { task: id("real") })
    );
    assert_eq!(
        fleet.core_app().used(),
        size(2, 0),
        "it counts until its process has ended"
    );
    fleet.apply(Input::Confirmed { id: id("real") });
    assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
    assert!(fleet.core_app().allocations.is_empty());
}

/// Reliability invariant (I13).
#[test]
fn a_gang_below_its_minimum_is_released_at_once_if_its_policy_requires_it() {
    let policy = Policy {
        when_short: WhenShort::ReleaseWhole,
        ..Policy::default()
    };
    let mut fleet = complete_gang(policy);
    lose_node(&mut fleet, "a");
    assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
    assert!(fleet.core_app().allocations.is_empty());
}

/// Reliability invariant (I13).
#[test]
fn a_succeeded_member_is_not_missing() {
    let mut fleet = complete_gang(Policy::default());
    for name in ["r1", "r2"] {
        fleet.add_task(name, size(2, 0), Some("g"));
    }
    fleet.tick();
    fleet.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    fleet.apply_to_task("r1", Event::Complete);
    assert!(fleet.core_app().lost_members().is_empty());
    fleet.apply_to_task("r2", Event::Complete);
    assert_eq!(fleet.head().state, Core::Completing);
    fleet.advance(30_000);
    assert!(fleet.dropped, "the core has completed");
}

/// Creates a gang whose two running members are lost with both nodes.
fn all_lost(policy: Policy) -> TestFleet {
    let mut fleet = complete_gang(policy);
    submit_and_bind(&mut fleet, &["r1", "r2"], ["a", "b"]);
    lose_node(&mut fleet, "a");
    lose_node(&mut fleet, "b");
    fleet
}

/// Submits tasks that replace the placeholders on these nodes.
fn submit_and_bind(fleet: &mut TestFleet, names: &[&str], nodes: [&str; 2]) {
    for name in names {
        fleet.add_task(name, size(2, 0), Some("g"));
    }
    fleet.tick();
    fleet.run_pass(nodes.map(|node| space(node, size(0, 0))).to_vec());
    for name in names {
        assert_eq!(fleet.apply_to_task(name, Event::Bind), None);
        assert_task_state(fleet, name, Task::Bound);
    }
}

fn assert_task_state(fleet: &mut TestFleet, name: &str, state: Task) {
    assert_eq!(fleet.task_state(name), state, "{name}");
}

#[test]
fn a_gang_that_lost_all_its_tasks_is_repaired_and_goes_on() {
    let mut fleet = all_lost(Policy::default());
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert!(fleet.core_app().allocations.is_empty());
    for name in ["r1", "r2"] {
        fleet.apply_to_task(name, Event::Killed);
        assert_task_state(&mut fleet, name, Task::Killed);
    }
    assert_eq!(
        fleet.core_app().waiting_entry(Vec::new()).unwrap().wanted[0].count,
        2
    );
    fleet.run_pass(vec![space("c", size(4, 0))]);
    assert_eq!(fleet.placeholders().len(), 2);
    submit_and_bind(&mut fleet, &["r3", "r4"], ["c", "c"]);
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
        fleet.advance(5_000);
        assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
        let failure = fleet.front.head.failure.clone().unwrap();
        assert_eq!(failure.code, FailureCode::GangShort);
    }
}

/// Unused allocations have a timeout, and a gang that ends with them has failed.
#[test]
fn a_repaired_gang_without_tasks_fails() {
    let mut fleet = all_lost(policy(Style::Soft));
    fleet.run_pass(vec![space("c", size(4, 0))]);
    fleet.advance(59_999);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    fleet.advance(1);
    assert_eq!(fleet.states(), (Front::Failed, Core::Failed));
    let failure = fleet.front.head.failure.clone().unwrap();
    assert_eq!(failure.message, "GangBelowMinimum: members lost of g");
    assert!(fleet.core_app().allocations.is_empty());
}

#[test]
fn a_gang_with_a_lost_member_does_not_complete() {
    let mut fleet = complete_gang(Policy::default());
    submit_and_bind(&mut fleet, &["r1", "r2"], ["a", "b"]);
    lose_node(&mut fleet, "b");
    fleet.run_pass(vec![space("c", size(2, 0))]);
    fleet.apply_to_task("r1", Event::Complete);
    assert_eq!(fleet.head().state, Core::Running);
    fleet.add_task("r3", size(2, 0), Some("g"));
    fleet.tick();
    fleet.run_pass(vec![space("c", size(0, 0))]);
    fleet.apply_to_task("r3", Event::Complete);
    assert_eq!(fleet.head().state, Core::Completing);
}

/// The minimum shrinks by exactly one, both before and after the gang is complete.
#[test]
fn a_gang_needs_one_member_less_after_its_owner_returns_a_placeholder() {
    let mut fleet = super::unplaced_gang(Policy::default());
    fleet.apply_to_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(fleet.states(), (Front::Reserving, Core::Accepted));
    fleet.run_pass(vec![space("a", size(2, 0))]);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.counters("g"), (2, 0, 1));
    assert_eq!(fleet.core_app().lost_members(), []);
    lose_node(&mut fleet, "a");
    assert_eq!(
        fleet.core_app().lost_members()[0].count,
        1,
        "the smaller minimum still applies"
    );

    let mut fleet = complete_gang(Policy::default());
    let placeholder = fleet.placeholders()[0].clone();
    fleet.apply_to_task(placeholder.as_str(), Event::Complete);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.core_app().used(), size(2, 0));
    assert_eq!(fleet.core_app().lost_members(), []);
}

/// The returned placeholder was the last missing one.
#[test]
fn a_gang_runs_when_its_last_missing_placeholder_is_returned() {
    let partial = Policy {
        admission: crate::policy::Admission::Partial,
        ..Policy::default()
    };
    let mut fleet = super::unplaced_gang(partial);
    assert_eq!(fleet.place_task("tg-app-1-g-0000000000", "a"), None);
    fleet.apply_to_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(fleet.states(), (Front::Running, Core::Running));
    assert_eq!(fleet.placeholders().len(), 1);
}
