//! What is stored and what runs, after a restart (4.3, 4.4).

use std::collections::{BTreeMap, BTreeSet};

use super::{policy, two};
use crate::core::State as Core;
use crate::front::State as Front;
use crate::messages::Termination;
use crate::policy::{Admission, Policy, Style};
use crate::recovery::{self, Action, Running, Stored};
use crate::task::{Runtime, State as Task, Wish};
use crate::trial::{ann, app, at, id, metadata, node, room, size};

#[test]
fn section_4_3_a_gang_that_was_reserving_when_the_front_went_down() {
    // Real work is under way: no placeholder is made.
    let mut trial = two(policy(Style::Soft));
    trial.task("real", size(1, 0), Some("g"));
    trial.front.tasks.get_mut("real").unwrap().state = Task::Bound;
    let step = recovery::resume(&mut trial.front, trial.now);
    assert!(step.applied());
    assert_eq!(trial.front.head.state, Front::Running);
    let mut held = trial.front.tasks.values().filter(|it| it.placeholder);
    assert!(held.all(|it| it.state == Task::Completed));
    // Its time is over.
    for (style, state) in [(Style::Soft, Front::Running), (Style::Hard, Front::Failing)] {
        let mut trial = two(policy(style));
        recovery::resume(&mut trial.front, at(59_999));
        assert_eq!(
            trial.front.head.state,
            Front::Reserving,
            "there is time left"
        );
        recovery::resume(&mut trial.front, at(60_000));
        assert_eq!(trial.front.head.state, state);
    }
    // The timer goes on with what is left of it, at least 1 ms.
    for (now, due) in [(20_000, 60_000 + 3_000), (500_000, 500_001)] {
        let partial = Policy {
            admission: Admission::Partial,
            ..policy(Style::Soft)
        };
        let mut trial = two(partial);
        trial.pass(vec![room("a", size(2, 0))]);
        let stored: Vec<_> = trial.half().allocations.values().cloned().collect();
        let submission = trial.head().submission.clone();
        let again = recovery::rebuild(submission, stored, Vec::new(), at(now));
        assert_eq!(again.head.state, Core::Accepted);
        assert_eq!(
            again.head.timers.due(crate::timers::Timer::Placeholder),
            Some(at(due))
        );
    }
}

#[test]
fn section_4_4_what_is_stored_and_what_runs() {
    let row = |key: &str, on: &str, placeholder| Stored {
        app: app("app-1"),
        key: id(key),
        node: node(on),
        placeholder,
    };
    let seen = |name: &str, key: &str| Running {
        app: app(name),
        key: id(key),
        first_seen: at(0),
    };
    let stored = [
        row("runs", "a", false),
        row("lost", "a", false),
        row("held", "a", true),
        row("silent", "b", false),
    ];
    let running = vec![
        seen("app-1", "runs"),
        seen("app-1", "new"),
        seen("gone", "x"),
    ];
    let reports = BTreeMap::from([(node("a"), running)]);
    let known = BTreeSet::from([app("app-1")]);
    let actions = |now| recovery::reconcile(&stored, &reports, &known, (at(now), 1_000));
    let report = |ask_owner| Action::Report {
        app: app("gone"),
        key: id("x"),
        node: node("a"),
        ask_owner,
    };
    let mut expected = vec![
        Action::Release {
            app: app("app-1"),
            key: id("lost"),
            termination: Termination::Unknown,
        },
        Action::Hold {
            app: app("app-1"),
            key: id("silent"),
        },
        Action::Attach {
            app: app("app-1"),
            key: id("new"),
            node: node("a"),
        },
        report(false),
    ];
    assert_eq!(actions(999), expected);
    expected[3] = report(true);
    assert_eq!(actions(1_000), expected);
}

#[test]
fn section_2_8_the_first_object_on_a_node_speaks_for_its_application() {
    let on = |name: &str| Wish {
        runtime: Runtime::Assigned { node: node(name) },
        ..Wish::default()
    };
    let (first, second) = (
        crate::metadata::Metadata::of(ann()),
        metadata(vec![], Policy::default()),
    );
    let (one, other) = (app("one"), app("other"));
    let (waits, runs) = (Wish::default(), on("a"));
    let objects = [
        (&one, &second, &waits),
        (&one, &first, &runs),
        (&one, &second, &runs),
    ];
    let found =
        recovery::applications(objects.into_iter().chain([(&other, &first, &waits)]), at(7));
    assert_eq!(found.len(), 1);
    assert_eq!(found[&one].creation_time, Some(at(7)));
    assert!(found[&one].force_create());
    let task = crate::task::Task::of(id("t"), runs, at(3));
    let allocation = recovery::existing_allocation(&task).unwrap();
    assert_eq!((allocation.node, allocation.ask.key), (node("a"), id("t")));
    let ended = Wish {
        runtime: Runtime::Ended,
        ..Wish::default()
    };
    let ended = crate::task::Task::of(id("t"), ended, at(3));
    assert_eq!(recovery::existing_allocation(&ended), None);
}
