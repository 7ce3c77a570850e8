//! Tests of the rule that a gang must hold its minimum once it was complete (I13).

use std::collections::BTreeMap;

use super::{complete_gang, lose_node, policy};
use crate::core::State as Core;
use crate::frontend::{self, FailureCode, Input, State as Front};
use crate::gang_admission::Outcome;
use crate::gang_policy::{Policy, Style, WhenShort};
use crate::task::{Event, State as Task};
use crate::test_application::{TestApplication, app, size, space, task_id, time};
use crate::waiting_gangs::{AdmissionPass, Decision, WaitingGang, decide_all};

/// Lost members get new placeholders before other gangs are served (I13).
#[test]
fn lost_members_are_repaired_first() {
    let mut test_app = complete_gang(policy(Style::Soft));
    assert_eq!(
        test_app.core().incomplete_gang(),
        None,
        "the gang is complete"
    );
    lose_node(&mut test_app, "b");
    let gang = test_app.core().incomplete_gang().unwrap();
    assert_eq!(
        (gang.live_members, gang.missing_members, gang.formed),
        (1, 1, true)
    );
    assert_eq!(gang.repair_deadline, Some(test_app.now.plus_ms(60_000)));
    assert_eq!(test_app.counters("g"), (2, 0, 1));
    let waiting = test_app.core().waiting_entry(Vec::new()).unwrap();
    assert!(waiting.is_repair);
    assert_eq!(waiting.wanted[0].count, 1);
    // This gang is older than the repair, and is still served after it.
    let older = WaitingGang {
        app: app("older"),
        is_repair: false,
        since: time(-5),
        ..waiting.clone()
    };
    let mut pass = AdmissionPass {
        spaces: vec![space("c", size(2, 0))],
        empty: vec![space("c", size(4, 0))],
        levels: BTreeMap::new(),
        now: test_app.now,
        overtaking_limit_ms: 60_000,
    };
    let decisions = decide_all(&[older, waiting], &mut pass);
    assert_eq!(decisions[0].0, app("app-1"));
    assert!(matches!(
        decisions[1].1,
        Decision::Admission(Outcome::Waiting(_))
    ));

    test_app.run_pass(vec![space("c", size(2, 0))]);
    assert_eq!(test_app.counters("g"), (3, 0, 1));
    assert_eq!(test_app.core().used(), size(4, 0));
    assert_eq!(
        test_app.core().incomplete_gang(),
        None,
        "the gang is complete again"
    );
    assert_eq!(
        test_app.core().waiting_entry(Vec::new()).map(|it| it.app),
        None
    );
    let is_bound = |key: &crate::ids::TaskId| test_app.front.tasks[key].state == Task::Bound;
    assert!(
        test_app.placeholders().iter().all(is_bound),
        "both sides know the new placeholder"
    );
    test_app.advance(70_000);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
}

/// The repair time is 60 s by default (I13).
#[test]
fn a_gang_that_is_not_repaired_in_time_is_released() {
    let mut test_app = complete_gang(Policy::default());
    test_app.add_task("real", size(2, 0), Some("g"));
    test_app.tick();
    test_app.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    test_app.apply_to_task("real", Event::Bind);
    lose_node(&mut test_app, "b");
    test_app.advance(59_999);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    test_app.advance(1);
    assert_eq!(test_app.states(), (Front::Failing, Core::Failing));
    assert_eq!(
        test_app.core().incomplete_gang(),
        None,
        "a gang that is being released is not incomplete"
    );
    assert!(
        test_app
            .core()
            .allocations
            .values()
            .all(|it| it.released.is_some())
    );
    let failure = test_app.front.head.failure.clone().unwrap();
    assert_eq!(failure.code, FailureCode::GangShort);
    assert!(test_app.effects.contains(&frontend::Effect::Stop {
        task: task_id("real")
    }));
    assert_eq!(
        test_app.core().used(),
        size(2, 0),
        "an allocation counts until its process has ended"
    );
    test_app.apply(Input::Confirmed {
        id: task_id("real"),
    });
    assert_eq!(test_app.states(), (Front::Failed, Core::Failed));
    assert!(test_app.core().allocations.is_empty());
}

/// The policy `ReleaseWhole` allows no repair (I13).
#[test]
fn a_gang_below_its_minimum_is_released_at_once_if_its_policy_requires_it() {
    let policy = Policy {
        when_short: WhenShort::ReleaseWhole,
        ..Policy::default()
    };
    let mut test_app = complete_gang(policy);
    lose_node(&mut test_app, "a");
    assert_eq!(test_app.states(), (Front::Failed, Core::Failed));
    assert!(test_app.core().allocations.is_empty());
}

/// A member that succeeded counts for the minimum (I13).
#[test]
fn a_succeeded_member_is_not_missing() {
    let mut test_app = complete_gang(Policy::default());
    for name in ["r1", "r2"] {
        test_app.add_task(name, size(2, 0), Some("g"));
    }
    test_app.tick();
    test_app.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    test_app.apply_to_task("r1", Event::Complete);
    assert!(test_app.core().lost_members().is_empty());
    test_app.apply_to_task("r2", Event::Complete);
    assert_eq!(test_app.core_head().state, Core::Completing);
    test_app.advance(30_000);
    assert!(test_app.dropped, "the core has completed");
}

/// Creates a gang whose two running members are lost with both nodes.
fn gang_with_lost_tasks(policy: Policy) -> TestApplication {
    let mut test_app = complete_gang(policy);
    submit_and_bind(&mut test_app, &["r1", "r2"], ["a", "b"]);
    lose_node(&mut test_app, "a");
    lose_node(&mut test_app, "b");
    test_app
}

/// Submits tasks that replace the placeholders on these nodes.
fn submit_and_bind(test_app: &mut TestApplication, names: &[&str], nodes: [&str; 2]) {
    for name in names {
        test_app.add_task(name, size(2, 0), Some("g"));
    }
    test_app.tick();
    test_app.run_pass(nodes.map(|node| space(node, size(0, 0))).to_vec());
    for name in names {
        assert_eq!(test_app.apply_to_task(name, Event::Bind), None);
        assert_task_state(test_app, name, Task::Bound);
    }
}

fn assert_task_state(test_app: &mut TestApplication, name: &str, state: Task) {
    assert_eq!(test_app.task_state(name), state, "{name}");
}

#[test]
fn a_gang_that_lost_all_its_tasks_is_repaired_and_continues() {
    let mut test_app = gang_with_lost_tasks(Policy::default());
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    assert!(test_app.core().allocations.is_empty());
    for name in ["r1", "r2"] {
        test_app.apply_to_task(name, Event::Killed);
        assert_task_state(&mut test_app, name, Task::Killed);
    }
    assert_eq!(
        test_app.core().waiting_entry(Vec::new()).unwrap().wanted[0].count,
        2
    );
    test_app.run_pass(vec![space("c", size(4, 0))]);
    assert_eq!(test_app.placeholders().len(), 2);
    submit_and_bind(&mut test_app, &["r3", "r4"], ["c", "c"]);
    for name in ["r3", "r4"] {
        assert_eq!(test_app.core_head().state, Core::Running);
        test_app.apply_to_task(name, Event::Complete);
    }
    assert_eq!(test_app.core_head().state, Core::Completing);
}

#[test]
fn a_gang_that_lost_all_its_tasks_and_is_not_repaired_has_failed() {
    for when_short in [
        WhenShort::Repair { grace_ms: 5_000 },
        WhenShort::ReleaseWhole,
    ] {
        let mut test_app = gang_with_lost_tasks(Policy {
            when_short,
            ..Policy::default()
        });
        test_app.advance(5_000);
        assert_eq!(test_app.states(), (Front::Failed, Core::Failed));
        let failure = test_app.front.head.failure.clone().unwrap();
        assert_eq!(failure.code, FailureCode::GangShort);
    }
}

/// Unused allocations have a timeout, and a gang that ends with them has failed.
#[test]
fn a_repaired_gang_without_tasks_fails() {
    let mut test_app = gang_with_lost_tasks(policy(Style::Soft));
    test_app.run_pass(vec![space("c", size(4, 0))]);
    test_app.advance(59_999);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    test_app.advance(1);
    assert_eq!(test_app.states(), (Front::Failed, Core::Failed));
    let failure = test_app.front.head.failure.clone().unwrap();
    assert_eq!(failure.message, "GangBelowMinimum: members lost of g");
    assert!(test_app.core().allocations.is_empty());
}

#[test]
fn a_gang_with_a_lost_member_does_not_complete() {
    let mut test_app = complete_gang(Policy::default());
    submit_and_bind(&mut test_app, &["r1", "r2"], ["a", "b"]);
    lose_node(&mut test_app, "b");
    test_app.run_pass(vec![space("c", size(2, 0))]);
    test_app.apply_to_task("r1", Event::Complete);
    assert_eq!(test_app.core_head().state, Core::Running);
    test_app.add_task("r3", size(2, 0), Some("g"));
    test_app.tick();
    test_app.run_pass(vec![space("c", size(0, 0))]);
    test_app.apply_to_task("r3", Event::Complete);
    assert_eq!(test_app.core_head().state, Core::Completing);
}

/// The minimum shrinks by exactly one, both before and after the gang is complete.
#[test]
fn a_gang_needs_one_member_less_after_its_owner_returns_a_placeholder() {
    let mut test_app = super::unplaced_gang(Policy::default());
    test_app.apply_to_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(test_app.states(), (Front::Reserving, Core::Accepted));
    test_app.run_pass(vec![space("a", size(2, 0))]);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    assert_eq!(test_app.counters("g"), (2, 0, 1));
    assert_eq!(test_app.core().lost_members(), []);
    lose_node(&mut test_app, "a");
    assert_eq!(
        test_app.core().lost_members()[0].count,
        1,
        "the smaller minimum still applies"
    );

    let mut test_app = complete_gang(Policy::default());
    let placeholder = test_app.placeholders()[0].clone();
    test_app.apply_to_task(placeholder.as_str(), Event::Complete);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    assert_eq!(test_app.core().used(), size(2, 0));
    assert_eq!(test_app.core().lost_members(), []);
}

/// The returned placeholder was the last missing one.
#[test]
fn a_gang_runs_when_its_last_missing_placeholder_is_returned() {
    let partial = Policy {
        admission: crate::gang_policy::Admission::Partial,
        ..Policy::default()
    };
    let mut test_app = super::unplaced_gang(partial);
    assert_eq!(test_app.place_task("tg-app-1-g-0000000000", "a"), None);
    test_app.apply_to_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(test_app.states(), (Front::Running, Core::Running));
    assert_eq!(test_app.placeholders().len(), 1);
}
