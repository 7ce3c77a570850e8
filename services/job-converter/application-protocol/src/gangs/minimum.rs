//! A gang that was complete keeps its minimum (I13).

use std::collections::BTreeMap;

use super::{formed, lose, policy};
use crate::admission::Outcome;
use crate::core::State as Core;
use crate::frontend::{self, FailureCode, Input, State as Front};
use crate::policy::{Policy, Style, WhenShort};
use crate::task::{Event, State as Task};
use crate::test_fleet::{Trial, app, at, id, size, space};
use crate::waiting_gangs::{Answer, Floor, Waiting, line};

/// Reliability invariant (I13).
#[test]
fn lost_members_are_repaired_first() {
    let mut trial = formed(policy(Style::Soft));
    assert_eq!(trial.half().incomplete_gang(), None, "it is whole");
    lose(&mut trial, "b");
    let incomplete_gang = trial.half().incomplete_gang().unwrap();
    assert_eq!(
        (
            incomplete_gang.has,
            incomplete_gang.lacks,
            incomplete_gang.formed
        ),
        (1, 1, true)
    );
    assert_eq!(incomplete_gang.until, Some(trial.now.plus_ms(60_000)));
    assert_eq!(trial.counters("g"), (2, 0, 1));
    let waiting = trial.half().waiting_entry(Vec::new()).unwrap();
    assert!(waiting.repair);
    assert_eq!(waiting.wanted[0].count, 1);
    // Older than the repair, and still served after it.
    let older = Waiting {
        app: app("older"),
        repair: false,
        since: at(-5),
        ..waiting.clone()
    };
    let mut floor = Floor {
        spaces: vec![space("c", size(2, 0))],
        empty: vec![space("c", size(4, 0))],
        levels: BTreeMap::new(),
        now: trial.now,
        fence_ms: 60_000,
    };
    let answers = line(&[older, waiting], &mut floor);
    assert_eq!(answers[0].0, app("app-1"));
    assert!(matches!(answers[1].1, Answer::Admission(Outcome::Wait(_))));

    trial.pass(vec![space("c", size(2, 0))]);
    assert_eq!(trial.counters("g"), (3, 0, 1));
    assert_eq!(trial.half().used(), size(4, 0));
    assert_eq!(trial.half().incomplete_gang(), None, "it is whole again");
    assert_eq!(
        trial.half().waiting_entry(Vec::new()).map(|it| it.app),
        None
    );
    let known = |key: &crate::ids::TaskId| trial.front.tasks[key].state == Task::Bound;
    assert!(
        trial.placeholders().iter().all(known),
        "both sides know the new one"
    );
    trial.after(70_000);
    assert_eq!(trial.states(), (Front::Running, Core::Running));
}

/// Reliability invariant (I13).
#[test]
fn a_gang_that_is_not_repaired_in_time_is_released() {
    let mut trial = formed(Policy::default());
    trial.task("real", size(2, 0), Some("g"));
    trial.tick();
    trial.pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    trial.tell_task("real", Event::Bind);
    lose(&mut trial, "b");
    trial.after(59_999);
    assert_eq!(trial.states(), (Front::Running, Core::Running));
    trial.after(1);
    assert_eq!(trial.states(), (Front::Failing, Core::Failing));
    assert_eq!(trial.half().incomplete_gang(), None, "it is being released");
    assert!(
        trial
            .half()
            .allocations
            .values()
            .all(|it| it.released.is_some())
    );
    let failure = trial.front.head.failure.clone().unwrap();
    assert_eq!(failure.code, FailureCode::GangShort);
    assert!(
        trial
            .work
            .contains(&frontend::Effect::Stop { task: id("real") })
    );
    assert_eq!(
        trial.half().used(),
        size(2, 0),
        "on the books until its work has ended"
    );
    trial.tell(Input::Confirmed { id: id("real") });
    assert_eq!(trial.states(), (Front::Failed, Core::Failed));
    assert!(trial.half().allocations.is_empty());
}

/// Reliability invariant (I13).
#[test]
fn a_gang_is_released_at_once_when_its_policy_says_so() {
    let at_once = Policy {
        when_short: WhenShort::ReleaseWhole,
        ..Policy::default()
    };
    let mut trial = formed(at_once);
    lose(&mut trial, "a");
    assert_eq!(trial.states(), (Front::Failed, Core::Failed));
    assert!(trial.half().allocations.is_empty());
}

/// Reliability invariant (I13).
#[test]
fn a_succeeded_member_is_not_missing() {
    let mut trial = formed(Policy::default());
    for name in ["r1", "r2"] {
        trial.task(name, size(2, 0), Some("g"));
    }
    trial.tick();
    trial.pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    trial.tell_task("r1", Event::Complete);
    assert!(trial.half().lost().is_empty());
    trial.tell_task("r2", Event::Complete);
    assert_eq!(trial.head().state, Core::Completing);
    trial.after(30_000);
    assert!(trial.dropped, "the core is done with it");
}

/// Two members run, and both nodes are lost.
fn all_lost(policy: Policy) -> Trial {
    let mut trial = formed(policy);
    send(&mut trial, &["r1", "r2"], ["a", "b"]);
    lose(&mut trial, "a");
    lose(&mut trial, "b");
    trial
}

/// Tasks that replace the placeholders on these nodes.
fn send(trial: &mut Trial, names: &[&str], nodes: [&str; 2]) {
    for name in names {
        trial.task(name, size(2, 0), Some("g"));
    }
    trial.tick();
    trial.pass(nodes.map(|node| space(node, size(0, 0))).to_vec());
    for name in names {
        assert_eq!(trial.tell_task(name, Event::Bind), None);
        end(trial, name, Task::Bound);
    }
}

fn end(trial: &mut Trial, name: &str, state: Task) {
    assert_eq!(trial.state(name), state, "{name}");
}

#[test]
fn a_gang_that_lost_all_its_tasks_is_repaired_and_goes_on() {
    let mut trial = all_lost(Policy::default());
    assert_eq!(trial.states(), (Front::Running, Core::Running));
    assert!(trial.half().allocations.is_empty());
    for name in ["r1", "r2"] {
        trial.tell_task(name, Event::Killed);
        end(&mut trial, name, Task::Killed);
    }
    assert_eq!(
        trial.half().waiting_entry(Vec::new()).unwrap().wanted[0].count,
        2
    );
    trial.pass(vec![space("c", size(4, 0))]);
    assert_eq!(trial.placeholders().len(), 2);
    send(&mut trial, &["r3", "r4"], ["c", "c"]);
    for name in ["r3", "r4"] {
        assert_eq!(trial.head().state, Core::Running);
        trial.tell_task(name, Event::Complete);
    }
    assert_eq!(trial.head().state, Core::Completing);
}

#[test]
fn a_gang_that_lost_all_its_tasks_and_is_not_repaired_has_failed() {
    for when_short in [
        WhenShort::Repair { grace_ms: 5_000 },
        WhenShort::ReleaseWhole,
    ] {
        let mut trial = all_lost(Policy {
            when_short,
            ..Policy::default()
        });
        trial.after(5_000);
        assert_eq!(trial.states(), (Front::Failed, Core::Failed));
        let failure = trial.front.head.failure.clone().unwrap();
        assert_eq!(failure.code, FailureCode::GangShort);
    }
}

/// Unused allocations are not held for ever, and a gang that ends with them has failed.
#[test]
fn a_repaired_gang_to_which_no_task_is_sent_has_failed() {
    let mut trial = all_lost(policy(Style::Soft));
    trial.pass(vec![space("c", size(4, 0))]);
    trial.after(59_999);
    assert_eq!(trial.states(), (Front::Running, Core::Running));
    trial.after(1);
    assert_eq!(trial.states(), (Front::Failed, Core::Failed));
    let failure = trial.front.head.failure.clone().unwrap();
    assert_eq!(failure.message, "GangBelowMinimum: members lost of g");
    assert!(trial.half().allocations.is_empty());
}

#[test]
fn a_gang_with_a_lost_member_does_not_complete() {
    let mut trial = formed(Policy::default());
    send(&mut trial, &["r1", "r2"], ["a", "b"]);
    lose(&mut trial, "b");
    trial.pass(vec![space("c", size(2, 0))]);
    trial.tell_task("r1", Event::Complete);
    assert_eq!(trial.head().state, Core::Running);
    trial.task("r3", size(2, 0), Some("g"));
    trial.tick();
    trial.pass(vec![space("c", size(0, 0))]);
    trial.tell_task("r3", Event::Complete);
    assert_eq!(trial.head().state, Core::Completing);
}

/// Before and after the gang is complete: exactly one member less is needed.
#[test]
fn a_gang_whose_owner_gives_one_placeholder_back_needs_one_less() {
    let mut trial = super::two(Policy::default());
    trial.tell_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(trial.states(), (Front::Reserving, Core::Accepted));
    trial.pass(vec![space("a", size(2, 0))]);
    assert_eq!(trial.states(), (Front::Running, Core::Running));
    assert_eq!(trial.counters("g"), (2, 0, 1));
    assert_eq!(trial.half().lost(), []);
    lose(&mut trial, "a");
    assert_eq!(trial.half().lost()[0].count, 1, "what is left is kept up");

    let mut trial = formed(Policy::default());
    let one = trial.placeholders()[0].clone();
    trial.tell_task(one.as_str(), Event::Complete);
    assert_eq!(trial.states(), (Front::Running, Core::Running));
    assert_eq!(trial.half().used(), size(2, 0));
    assert_eq!(trial.half().lost(), []);
}

/// The returned placeholder was the last missing one.
#[test]
fn a_gang_runs_when_its_last_missing_placeholder_is_returned() {
    let partial = Policy {
        admission: crate::policy::Admission::Partial,
        ..Policy::default()
    };
    let mut trial = super::two(partial);
    assert_eq!(trial.place("tg-app-1-g-0000000000", "a"), None);
    trial.tell_task("tg-app-1-g-0000000001", Event::Complete);
    assert_eq!(trial.states(), (Front::Running, Core::Running));
    assert_eq!(trial.placeholders().len(), 1);
}
