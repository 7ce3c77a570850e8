//! Worked scenarios of the protocol that concern these state machines, by number.
//!
//! Scenarios about queues, order, preemption and placement rules are tested with the planner.

mod gangs;

use hayward_vocabulary::Size;

use crate::answers::{Added, NotRemoved, TaskAdded, TaskNotAdded};
use crate::core::{self, State as Core};
use crate::frontend::{Effect, Input, State as Front};
use crate::groups;
use crate::messages::{Ask, Termination, ToCore, ToFront};
use crate::metadata::Metadata;
use crate::partition::{Limits, Partition};
use crate::policy::{Policy, Style};
use crate::reason::Reason;
use crate::task::{Event, State as Task, Wish};
use crate::test_fleet::{
    TestFleet, ann, app, ask, at, group, id, metadata, node, size, submission,
};

fn in_queue(queue: &str) -> Metadata {
    Metadata {
        queue_name: queue.to_owned(),
        ..Metadata::new(ann())
    }
}

#[test]
fn a_duplicate_application_is_not_changed() {
    let mut book = Partition::new(Limits::default());
    let name = app("app00001");
    let added = book.add("jobs", &name, in_queue("root.a"), at(1)).unwrap();
    assert_eq!(added, Added::Created);
    let stored = book.get(&name).unwrap();
    assert_eq!((stored.head.state, stored.tasks.len()), (Front::New, 0));
    let again = book
        .add("jobs", &name, in_queue("root.other"), at(2))
        .unwrap();
    let ignored_fields = vec!["queueName"];
    assert_eq!(again, Added::Existing { ignored_fields });
    assert_eq!(book.get(&name).unwrap().head.metadata.queue_name, "root.a");
    // Each application has exactly one writer.
    assert!(
        book.add("orchestrator", &name, in_queue("root.a"), at(3))
            .is_err()
    );
}

#[test]
fn live_tasks_prevent_a_removal() {
    let mut book = Partition::new(Limits::default());
    let names = [1, 2, 3].map(|number| app(&format!("app0000{number}")));
    for name in &names {
        book.add("jobs", name, in_queue("root.a"), at(1)).unwrap();
    }
    let wish = Wish {
        alias: Some("/remove-test-00001".to_owned()),
        ..Wish::default()
    };
    book.add_task(&names[0], &id("t"), wish, at(1)).unwrap();
    book.apply_to_task(&names[0], &id("t"), Event::Init, at(1))
        .unwrap();
    book.add_task(&names[1], &id("t"), Wish::default(), at(1))
        .unwrap();
    for event in [Event::Reject, Event::Fail] {
        assert!(
            book.apply_to_task(&names[1], &id("t"), event, at(1))
                .unwrap()
                .applied
        );
    }
    let blocking_tasks = vec!["/remove-test-00001".to_owned()];
    let blocked = book.remove(&names[0], false).unwrap_err();
    assert_eq!(blocked, NotRemoved::Blocked { blocking_tasks });
    assert!(book.get(&names[0]).is_some());
    book.remove(&names[1], false).unwrap();
    assert_eq!(book.remove(&names[1], false), Err(NotRemoved::NotFound));
    assert!(book.get(&names[2]).is_some());
    let forced = book.remove(&names[0], true).unwrap();
    let stop = Effect::Stop { task: id("t") };
    assert_eq!(forced, [stop, Effect::ToCore(ToCore::Remove)]);
}

#[test]
fn tasks_are_added_once_and_forgotten() {
    let mut book = Partition::new(Limits::default());
    let name = app("app00001");
    book.add("jobs", &name, in_queue("root.a"), at(1)).unwrap();
    let count = |book: &Partition| book.get(&name).unwrap().tasks.len();
    let wish = Wish::default;
    let one = book.add_task(&name, &id("1"), wish(), at(1));
    assert_eq!(one, Ok(TaskAdded::Created));
    book.add_task(&name, &id("2"), wish(), at(1)).unwrap();
    let again = book.add_task(&name, &id("2"), wish(), at(1));
    assert_eq!((again, count(&book)), (Ok(TaskAdded::Existing), 2));
    let unknown = book.add_task(&app("other"), &id("1"), wish(), at(1));
    assert_eq!(unknown, Err(TaskNotAdded::NotFound));
    book.remove_task(&name, &id("9"));
    book.remove_task(&app("other"), &id("1"));
    assert_eq!(count(&book), 2);
    book.remove_task(&name, &id("1"));
    assert_eq!(count(&book), 1);
    book.remove_task(&name, &id("2"));
    assert_eq!(count(&book), 0);
}

fn warnings(fleet: &TestFleet) -> usize {
    let warned = |it: &&Effect| matches!(it, Effect::Warn { .. });
    fleet.work.iter().filter(warned).count()
}

#[test]
fn failing_twice_fails_the_application() {
    let mut fleet = TestFleet::plain();
    fleet.tick();
    for name in ["new", "pending", "scheduling", "allocated"] {
        fleet.task(name, Size::default(), None);
    }
    for name in ["pending", "scheduling", "allocated"] {
        fleet.apply_to_task(name, Event::Init);
    }
    for name in ["scheduling", "allocated"] {
        fleet.apply_to_task(name, Event::Submit);
    }
    fleet.apply_to_task("allocated", Event::Allocate);
    assert_eq!(fleet.front.head.state, Front::Accepted);
    let fail = || Input::Fail { reason: None };
    assert_eq!(fleet.apply(fail()), None);
    assert_eq!(
        (fleet.front.head.state, warnings(&fleet)),
        (Front::Failing, 3)
    );
    assert_eq!(fleet.apply(fail()), None);
    assert_eq!(
        (fleet.front.head.state, warnings(&fleet)),
        (Front::Failed, 6)
    );
    assert_eq!(
        fleet.state("new"),
        Task::New,
        "an owner's word ends no task"
    );

    let mut fleet = TestFleet::plain();
    assert_eq!(fleet.apply(fail()), Some(Reason::NotLegalHere));
    assert_eq!(fleet.front.head.state, Front::New);
    fleet.front.head.state = Front::Submitted;
    fleet.apply(fail());
    assert_eq!(fleet.front.head.state, Front::Failing);
    fleet.apply(fail());
    assert_eq!(
        (fleet.front.head.state, warnings(&fleet)),
        (Front::Failed, 0)
    );
}

#[test]
fn completing_a_waiting_task_withdraws_its_ask() {
    let mut fleet = TestFleet::plain();
    fleet.task("t", Size::default(), None);
    fleet.to_core.clear();
    for event in [Event::Init, Event::Submit, Event::Complete] {
        assert_eq!(fleet.apply_to_task("t", event), None);
    }
    assert_eq!(fleet.state("t"), Task::Completed);
    let sent = fleet
        .to_core
        .iter()
        .filter(|it| !matches!(it, ToCore::Ask(_)));
    let sent: Vec<_> = sent.cloned().collect();
    assert_eq!(sent, [ToCore::ReleaseAsk { key: id("t") }]);
}

/// An allocation and a kill may cross each other.
#[test]
fn an_allocation_for_an_ending_task_is_released_with_its_end() {
    let mut fleet = TestFleet::plain();
    fleet.task("t", Size::default(), None);
    let mut fleet = fleet.begun();
    assert_eq!(fleet.state("t"), Task::Scheduling);
    assert_eq!(fleet.apply(Input::Kill), None);
    assert_eq!(fleet.place("t", "a"), None);
    assert!(fleet.half().allocations.contains_key(&id("t")));
    assert_eq!(fleet.apply_to_task("t", Event::Killed), None);
    assert!(fleet.half().allocations.is_empty());
}

#[test]
fn policy_parameters_parse() {
    for (text, seconds, style) in [
        (
            "placeholderTimeoutInSeconds=50   gangSchedulingStyle=Hard",
            50,
            Style::Hard,
        ),
        (
            "placeholderTimeoutInSeconds=50=25 gangSchedulingStyle=Hard=Soft",
            0,
            Style::Soft,
        ),
        (
            "placeholderTimeoutInSeconds=50 gangSchedulingStyle=Hard=Soft",
            50,
            Style::Soft,
        ),
        ("placeholderTimeoutInSeconds=oneSecond", 0, Style::Soft),
        ("gangSchedulingStyle=abc", 0, Style::Soft),
        ("", 0, Style::Soft),
    ] {
        let policy = Policy::parse(text);
        let found = (policy.placeholder_timeout_ms, policy.style);
        assert_eq!(found, (seconds * 1_000, style), "{text:?}");
    }
}

/// Creates a core with pending placeholders.
fn core_with(groups: Vec<groups::TaskGroup>, policy: Policy) -> core::Application {
    let mut core = core::Application::new(submission(groups, policy), at(0));
    core.step(core::Input::Admitted(Ok(())), at(0));
    core
}

fn apply(core: &mut core::Application, input: core::Input) -> Vec<core::Effect> {
    let step = core.step(input, at(10));
    assert!(step.applied(), "{:?}", step.refused);
    step.effects
}

fn asks(core: &mut core::Application, ask: Ask) {
    apply(core, core::Input::Front(ToCore::Ask(ask)));
}

fn held(core: &mut core::Application, key: &str, size: Size, group: Option<&str>) {
    asks(core, ask(key, size, group));
    let place = core::Input::Placed {
        key: id(key),
        node: node("a"),
    };
    apply(core, place);
}

fn placeholder(key: &str, size: Size, group: &str) -> Ask {
    Ask {
        placeholder: true,
        ..ask(key, size, Some(group))
    }
}

fn held_placeholder(core: &mut core::Application, key: &str, size: Size, group: &str) {
    asks(core, placeholder(key, size, group));
    let place = core::Input::Placed {
        key: id(key),
        node: node("a"),
    };
    apply(core, place);
}

fn confirm(key: &str, termination: Termination) -> core::Input {
    core::Input::Front(ToCore::Confirm {
        key: id(key),
        termination,
    })
}

/// Serializes a value to its row and reads it back.
fn reread<T: serde::Serialize + serde::de::DeserializeOwned>(retained: &T) -> T {
    serde_json::from_str(&serde_json::to_string(retained).unwrap()).unwrap()
}

#[test]
fn an_application_recovers_from_its_rows() {
    let vector = |memory_bytes, cores: u64| Size {
        memory_bytes,
        cpu_milli: cores * 1_000,
        ..Size::default()
    };
    let mut core = core_with(Vec::new(), Policy::default());
    held(&mut core, "1", vector(10, 1), None);
    held(&mut core, "2", vector(10, 1), None);
    assert_eq!(
        (core.head.state, core.used()),
        (Core::Running, vector(20, 2))
    );
    for (key, memory) in [("3", 50), ("4", 100), ("5", 50), ("6", 100)] {
        asks(&mut core, ask(key, vector(memory, 5), None));
    }
    // The planner decides which of them fit: two of fifty.
    for (key, on) in [("3", "a"), ("5", "b")] {
        let place = core::Input::Placed {
            key: id(key),
            node: node(on),
        };
        apply(&mut core, place);
    }
    let pending = core.pending_size().memory_bytes;
    assert_eq!((core.used().memory_bytes, pending), (120, 200));
    // A restart reads the row, and the waiting ask continues to wait.
    let again = core::Application {
        head: reread(&core.head),
        pending: reread(&core.pending),
        allocations: reread(&core.allocations),
    };
    assert_eq!(
        (again.allocations.len(), again.used()),
        (4, vector(120, 12))
    );
    let mut on_nodes = again.used_on(&node("a"));
    on_nodes.add(&again.used_on(&node("b")));
    assert_eq!(on_nodes, vector(120, 12));
    assert_eq!((again.pending.len(), again.head.state), (2, Core::Running));
    assert_eq!(again.pending_size().memory_bytes, 200);
    assert_eq!(
        again.head.submitted_at,
        at(0),
        "its age is that of its work"
    );
}

#[test]
fn a_task_for_a_dead_application_is_refused_with_its_failure() {
    let mut book = Partition::new(Limits::default());
    let name = app("app-1");
    let (groups, policy) = (vec![group("g", 1, size(1, 0))], Policy::default());
    book.add("jobs", &name, metadata(groups, policy), at(1))
        .unwrap();
    book.tick(at(2));
    let message = ToFront::Rejected {
        reason: "queue is full".to_owned(),
    };
    book.apply_core_message(&name, message, at(3));
    let dead = book
        .add_task(&name, &id("t"), Wish::default(), at(4))
        .unwrap_err();
    let TaskNotAdded::Dead { state, failure } = dead else {
        panic!("{dead:?}");
    };
    assert_eq!(state, Front::Failed);
    assert_eq!(
        failure.unwrap().message,
        "ApplicationRejected: queue is full"
    );
    // The id of a removed application can be used again.
    let again = book.add("jobs", &name, in_queue("root.a"), at(5)).unwrap();
    assert!(matches!(again, Added::Existing { .. }));
    book.remove(&name, false).unwrap();
    let again = book.add("jobs", &name, in_queue("root.a"), at(6)).unwrap();
    assert_eq!(again, Added::Created);
    let changes = book.take_changes();
    assert_eq!((changes.removed.len(), changes.heads.len()), (1, 1));
    assert_eq!(changes.heads[0].state, Front::New);
}

#[test]
fn a_confirmation_for_a_removed_application_is_answered() {
    let mut book = Partition::new(Limits::default());
    let name = app("app-1");
    assert!(book.confirm(&name, &id("t"), at(1)).is_none());
    book.add("jobs", &name, in_queue("root.a"), at(1)).unwrap();
    book.add_task(&name, &id("t"), Wish::default(), at(1))
        .unwrap();
    let result = book.confirm(&name, &id("t"), at(1)).unwrap();
    assert_eq!(
        (result.applied, result.reason),
        (false, Some(Reason::NoRelease))
    );
    let unknown = book.apply_to_task(&name, &id("u"), Event::Complete, at(1));
    assert!(unknown.is_none());
    book.remove(&name, true).unwrap();
    let result = book.confirm(&name, &id("t"), at(2)).unwrap();
    assert_eq!(
        (result.applied, result.reason),
        (false, Some(Reason::ApplicationGone))
    );
    let late = ToFront::Allocated {
        key: id("t"),
        node: node("a"),
    };
    let step = book.apply_core_message(&name, late, at(3));
    assert_eq!(step.effects, [Effect::ToCore(ToCore::Remove)]);
}
