//! Tests of the transition tables, for every state and every event. The tests list the legal
//! transitions a second time. All others must be refused and change nothing.

use crate::frontend::{self, Input};
use crate::messages::{Termination, ToFront};
use crate::test_application::{TestApplication, node, task_id};
use crate::{core, task};

/// Parses lines such as `Event: From>To, From>To`.
fn parse_table(list: &str) -> Vec<(String, String, String)> {
    let rows = list.lines().map(str::trim).filter(|row| !row.is_empty());
    let mut transitions = Vec::new();
    for row in rows {
        let (event, pairs) = row.split_once(':').unwrap();
        for pair in pairs.split(',') {
            let (from, to) = pair.split_once('>').unwrap();
            let trimmed = |it: &str| it.trim().to_owned();
            transitions.push((trimmed(from), trimmed(event), trimmed(to)));
        }
    }
    transitions
}

fn assert_transitions<S: std::fmt::Debug + Copy, E: std::fmt::Debug + Copy>(
    states: &[S],
    events: &[E],
    next: impl Fn(S, E) -> Option<S>,
    legal: &str,
) {
    let legal = parse_table(legal);
    let mut matched = 0;
    for from in states {
        for event in events {
            let (from_name, event_name) = (format!("{from:?}"), format!("{event:?}"));
            let row = legal
                .iter()
                .find(|(from, event, _)| *from == from_name && *event == event_name);
            let expected = row.map(|(_, _, to)| to.clone());
            let found = next(*from, *event).map(|to| format!("{to:?}"));
            assert_eq!(found, expected, "{from_name} + {event_name}");
            matched += usize::from(row.is_some());
        }
    }
    assert_eq!(matched, legal.len(), "unknown state or event in the table");
}

#[test]
fn frontend_transitions_match_the_table() {
    let legal = "
        Submit: New>Submitted
        Recover: New>Recovering
        Accept: Submitted>Accepted, Recovering>Accepted
        Reject: Submitted>Rejected
        TryReserve: Accepted>Reserving
        Run: Accepted>Running, Reserving>Running, Resuming>Running, Running>Running
        UpdateReservation: Reserving>Reserving
        Resume: Reserving>Resuming
        TaskCompleted: Resuming>Resuming
        Complete: Running>Completed
        Fail: Submitted>Failing, Accepted>Failing, Reserving>Failing, Running>Failing
        Fail: Failing>Failed, Rejected>Failed
        Kill: Accepted>Killing, Reserving>Killing, Running>Killing
        Killed: Killing>Killed
        ReleaseAllocation: Running>Running, Failing>Failing, Resuming>Resuming
        ReleaseAllocation: Accepted>Running, Reserving>Running
        ReleaseAsk: Running>Running, Accepted>Running, Reserving>Running
        ReleaseAsk: Failing>Failing, Resuming>Resuming";
    let (states, events) = (&frontend::State::ALL, &frontend::Event::ALL);
    assert_transitions(states, events, frontend::next, legal);
}

#[test]
fn task_transitions_match_the_table() {
    let legal = "
        Init: New>Pending
        Submit: Pending>Scheduling
        Allocate: Scheduling>Allocated, Completed>Completed
        Bind: Allocated>Bound
        Complete: New>Completed, Pending>Completed, Scheduling>Completed, Allocated>Completed
        Complete: Bound>Completed, Completed>Completed, Killing>Completed, Killed>Completed
        Complete: Rejected>Completed, Failed>Completed
        Kill: Pending>Killing, Scheduling>Killing, Allocated>Killing, Bound>Killing
        Killed: Killing>Killed
        Reject: New>Rejected, Pending>Rejected, Scheduling>Rejected
        Fail: Rejected>Failed, Allocated>Failed, Bound>Failed";
    assert_transitions(&task::State::ALL, &task::Event::ALL, task::next, legal);
}

#[test]
fn core_transitions_match_the_table() {
    let legal = "
        Reject: New>Rejected
        Run: New>Accepted, Resuming>Accepted, Accepted>Running
        Run: Running>Running, Completing>Running
        Complete: Accepted>Completing, Running>Completing, Completing>Completed
        Fail: New>Failing, Accepted>Failing, Running>Failing, Failing>Failed
        Resume: New>Resuming, Accepted>Resuming
        Expire: Completed>Expired, Failed>Expired, Rejected>Expired";
    assert_transitions(&core::State::ALL, &core::Event::ALL, core::next, legal);
}

fn inputs() -> Vec<Input> {
    let keys = vec![task_id("t")];
    let mut all = vec![
        Input::Tick,
        Input::Recover,
        Input::Complete,
        Input::Fail { reason: None },
        Input::Kill,
        Input::Confirmed { id: task_id("t") },
        Input::Confirmed {
            id: task_id("unknown"),
        },
        Input::Core(ToFront::Accepted),
        Input::Core(ToFront::Rejected {
            reason: "no".to_owned(),
        }),
        Input::Core(ToFront::Allocated {
            key: task_id("t"),
            node: node("a"),
        }),
        Input::Core(ToFront::AskRejected {
            key: task_id("t"),
            reason: "no".to_owned(),
        }),
        Input::Core(ToFront::Release {
            keys: keys.clone(),
            termination: Termination::Timeout,
        }),
        Input::Core(ToFront::ReleaseAsks {
            keys,
            termination: Termination::Timeout,
        }),
    ];
    all.extend(core::State::ALL.map(|state| {
        Input::Core(ToFront::Updated {
            state,
            message: None,
        })
    }));
    all.extend(task::Event::ALL.map(|event| Input::Task {
        id: task_id("t"),
        event,
    }));
    all
}

#[test]
fn every_input_in_every_state_is_answered_and_a_refusal_changes_nothing() {
    for state in frontend::State::ALL {
        for task_state in task::State::ALL {
            for input in inputs() {
                let mut test_app = TestApplication::without_groups();
                test_app.add_task("t", hayward_vocabulary::Size::default(), None);
                test_app.front.head.state = state;
                let task = test_app.front.tasks.get_mut("t").unwrap();
                task.state = task_state;
                let before = test_app.front.clone();
                let step = test_app.front.step(input.clone(), test_app.now);
                let case = format!("{state:?}, task {task_state:?}: {input:?}");
                if let Some(refused) = &step.refusal {
                    assert_eq!(test_app.front, before, "{case}");
                    assert!(
                        step.transitions.is_empty() && step.effects.is_empty(),
                        "{case}"
                    );
                    assert!(!refused.to_string().is_empty());
                }
            }
        }
    }
}

#[test]
fn a_state_of_the_core_moves_the_frontend_at_most_one_step() {
    use core::State as Core;
    use frontend::State::{Failing, Reserving, Resuming, Running};
    for (from, state, to, applied) in [
        (Reserving, Core::Resuming, Resuming, true),
        (Running, Core::Resuming, Running, false),
        (Running, Core::Failing, Failing, true),
        (Failing, Core::Failed, frontend::State::Failed, true),
        (Running, Core::Accepted, Running, false),
        (Running, Core::Running, Running, false),
        (Running, Core::Completing, Running, false),
        (Running, Core::Expired, Running, false),
    ] {
        let mut test_app = TestApplication::without_groups();
        test_app.front.head.state = from;
        let message = ToFront::Updated {
            state,
            message: None,
        };
        let refused = test_app.apply(Input::Core(message));
        assert_eq!(
            (test_app.front.head.state, refused.is_none()),
            (to, applied),
            "{state:?}"
        );
    }
}
