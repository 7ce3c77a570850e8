//! Scenarios of the protocol specification that concern these state machines, one test for each.
//!
//! Scenarios about queues, order, preemption and placement rules are tested with the planner.

mod gangs;

use hayward_vocabulary::Size;

use crate::core::{self, State as Core};
use crate::frontend::{Effect, Input, State as Front};
use crate::gang_policy::{Policy, Style};
use crate::messages::{Ask, Termination, ToCore, ToFront};
use crate::metadata::Metadata;
use crate::no_change_reason::Reason;
use crate::operation_results::{Added, NotRemoved, TaskAdded, TaskNotAdded};
use crate::partition::{Limits, Partition};
use crate::task::{Event, State as Task, TaskSpec};
use crate::task_groups;
use crate::test_application::{
    TestApplication, ann, app, ask, group, metadata, node, size, submission, task_id, time,
};

fn in_queue(queue: &str) -> Metadata {
    Metadata {
        queue_name: queue.to_owned(),
        ..Metadata::new(ann())
    }
}

#[test]
fn a_duplicate_application_is_not_changed() {
    let mut partition = Partition::new(Limits::default());
    let name = app("app00001");
    let added = partition
        .add("jobs", &name, in_queue("root.a"), time(1))
        .unwrap();
    assert_eq!(added, Added::Created);
    let stored = partition.get(&name).unwrap();
    assert_eq!((stored.head.state, stored.tasks.len()), (Front::New, 0));
    let result = partition
        .add("jobs", &name, in_queue("root.other"), time(2))
        .unwrap();
    let ignored_fields = vec!["queueName"];
    assert_eq!(result, Added::Existing { ignored_fields });
    assert_eq!(
        partition.get(&name).unwrap().head.metadata.queue_name,
        "root.a"
    );
    // Each application has exactly one writer.
    assert!(
        partition
            .add("orchestrator", &name, in_queue("root.a"), time(3))
            .is_err()
    );
}

#[test]
fn live_tasks_prevent_a_removal() {
    let mut partition = Partition::new(Limits::default());
    let names = [1, 2, 3].map(|number| app(&format!("app0000{number}")));
    for name in &names {
        partition
            .add("jobs", name, in_queue("root.a"), time(1))
            .unwrap();
    }
    let spec = TaskSpec {
        alias: Some("/remove-test-00001".to_owned()),
        ..TaskSpec::default()
    };
    partition
        .add_task(&names[0], &task_id("t"), spec, time(1))
        .unwrap();
    partition
        .apply_to_task(&names[0], &task_id("t"), Event::Init, time(1))
        .unwrap();
    partition
        .add_task(&names[1], &task_id("t"), TaskSpec::default(), time(1))
        .unwrap();
    for event in [Event::Reject, Event::Fail] {
        assert!(
            partition
                .apply_to_task(&names[1], &task_id("t"), event, time(1))
                .unwrap()
                .applied
        );
    }
    let blocking_tasks = vec!["/remove-test-00001".to_owned()];
    let blocked = partition.remove(&names[0], false).unwrap_err();
    assert_eq!(blocked, NotRemoved::Blocked { blocking_tasks });
    assert!(partition.get(&names[0]).is_some());
    partition.remove(&names[1], false).unwrap();
    assert_eq!(
        partition.remove(&names[1], false),
        Err(NotRemoved::NotFound)
    );
    assert!(partition.get(&names[2]).is_some());
    let forced = partition.remove(&names[0], true).unwrap();
    let stop = Effect::Stop { task: task_id("t") };
    assert_eq!(forced, [stop, Effect::ToCore(ToCore::Remove)]);
}

#[test]
fn tasks_are_added_once_and_removed() {
    let mut partition = Partition::new(Limits::default());
    let name = app("app00001");
    partition
        .add("jobs", &name, in_queue("root.a"), time(1))
        .unwrap();
    let count = |partition: &Partition| partition.get(&name).unwrap().tasks.len();
    let spec = TaskSpec::default;
    let first = partition.add_task(&name, &task_id("1"), spec(), time(1));
    assert_eq!(first, Ok(TaskAdded::Created));
    partition
        .add_task(&name, &task_id("2"), spec(), time(1))
        .unwrap();
    let result = partition.add_task(&name, &task_id("2"), spec(), time(1));
    assert_eq!((result, count(&partition)), (Ok(TaskAdded::Existing), 2));
    let unknown = partition.add_task(&app("other"), &task_id("1"), spec(), time(1));
    assert_eq!(unknown, Err(TaskNotAdded::NotFound));
    partition.remove_task(&name, &task_id("9"));
    partition.remove_task(&app("other"), &task_id("1"));
    assert_eq!(count(&partition), 2);
    partition.remove_task(&name, &task_id("1"));
    assert_eq!(count(&partition), 1);
    partition.remove_task(&name, &task_id("2"));
    assert_eq!(count(&partition), 0);
}

fn count_warnings(test_app: &TestApplication) -> usize {
    let is_warning = |it: &&Effect| matches!(it, Effect::Warn { .. });
    test_app.effects.iter().filter(is_warning).count()
}

#[test]
fn failing_twice_fails_the_application() {
    let mut test_app = TestApplication::without_groups();
    test_app.tick();
    for name in ["new", "pending", "scheduling", "allocated"] {
        test_app.add_task(name, Size::default(), None);
    }
    for name in ["pending", "scheduling", "allocated"] {
        test_app.apply_to_task(name, Event::Init);
    }
    for name in ["scheduling", "allocated"] {
        test_app.apply_to_task(name, Event::Submit);
    }
    test_app.apply_to_task("allocated", Event::Allocate);
    assert_eq!(test_app.front.head.state, Front::Accepted);
    let fail = || Input::Fail { reason: None };
    assert_eq!(test_app.apply(fail()), None);
    assert_eq!(
        (test_app.front.head.state, count_warnings(&test_app)),
        (Front::Failing, 3)
    );
    assert_eq!(test_app.apply(fail()), None);
    assert_eq!(
        (test_app.front.head.state, count_warnings(&test_app)),
        (Front::Failed, 6)
    );
    assert_eq!(
        test_app.task_state("new"),
        Task::New,
        "a failure reported by the owner ends no task"
    );

    let mut test_app = TestApplication::without_groups();
    assert_eq!(test_app.apply(fail()), Some(Reason::NotLegalHere));
    assert_eq!(test_app.front.head.state, Front::New);
    test_app.front.head.state = Front::Submitted;
    test_app.apply(fail());
    assert_eq!(test_app.front.head.state, Front::Failing);
    test_app.apply(fail());
    assert_eq!(
        (test_app.front.head.state, count_warnings(&test_app)),
        (Front::Failed, 0)
    );
}

#[test]
fn completing_a_waiting_task_withdraws_its_ask() {
    let mut test_app = TestApplication::without_groups();
    test_app.add_task("t", Size::default(), None);
    test_app.to_core.clear();
    for event in [Event::Init, Event::Submit, Event::Complete] {
        assert_eq!(test_app.apply_to_task("t", event), None);
    }
    assert_eq!(test_app.task_state("t"), Task::Completed);
    let sent = test_app
        .to_core
        .iter()
        .filter(|it| !matches!(it, ToCore::Ask(_)));
    let sent: Vec<_> = sent.cloned().collect();
    assert_eq!(sent, [ToCore::ReleaseAsk { key: task_id("t") }]);
}

/// The core may allocate before it receives the kill.
#[test]
fn an_allocation_for_an_ending_task_is_released_with_its_end() {
    let mut test_app = TestApplication::without_groups();
    test_app.add_task("t", Size::default(), None);
    let mut test_app = test_app.after_submission();
    assert_eq!(test_app.task_state("t"), Task::Scheduling);
    assert_eq!(test_app.apply(Input::Kill), None);
    assert_eq!(test_app.place_task("t", "a"), None);
    assert!(test_app.core().allocations.contains_key(&task_id("t")));
    assert_eq!(test_app.apply_to_task("t", Event::Killed), None);
    assert!(test_app.core().allocations.is_empty());
}

#[test]
fn policy_parameters_are_parsed_and_invalid_ones_are_ignored() {
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
        let parsed = (policy.placeholder_timeout_ms, policy.style);
        assert_eq!(parsed, (seconds * 1_000, style), "{text:?}");
    }
}

/// Creates a core with pending placeholders.
fn core_with(groups: Vec<task_groups::TaskGroup>, policy: Policy) -> core::Application {
    let mut core = core::Application::new(submission(groups, policy), time(0));
    core.step(core::Input::Admitted(Ok(())), time(0));
    core
}

fn apply(core: &mut core::Application, input: core::Input) -> Vec<core::Effect> {
    let step = core.step(input, time(10));
    assert!(step.is_applied(), "{:?}", step.refusal);
    step.effects
}

fn add_ask(core: &mut core::Application, ask: Ask) {
    apply(core, core::Input::Front(ToCore::Ask(ask)));
}

fn place_task(core: &mut core::Application, key: &str, size: Size, group: Option<&str>) {
    add_ask(core, ask(key, size, group));
    let input = core::Input::Placed {
        key: task_id(key),
        node: node("a"),
    };
    apply(core, input);
}

fn placeholder(key: &str, size: Size, group: &str) -> Ask {
    Ask {
        placeholder: true,
        ..ask(key, size, Some(group))
    }
}

fn place_placeholder(core: &mut core::Application, key: &str, size: Size, group: &str) {
    add_ask(core, placeholder(key, size, group));
    let input = core::Input::Placed {
        key: task_id(key),
        node: node("a"),
    };
    apply(core, input);
}

fn confirm(key: &str, termination: Termination) -> core::Input {
    core::Input::Front(ToCore::Confirm {
        key: task_id(key),
        termination,
    })
}

/// Serializes a value to its row and reads it back.
fn serialize_and_parse<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[test]
fn an_application_recovers_from_its_rows() {
    let size_of = |memory_bytes, cores: u64| Size {
        memory_bytes,
        cpu_milli: cores * 1_000,
        ..Size::default()
    };
    let mut core = core_with(Vec::new(), Policy::default());
    place_task(&mut core, "1", size_of(10, 1), None);
    place_task(&mut core, "2", size_of(10, 1), None);
    assert_eq!(
        (core.head.state, core.used()),
        (Core::Running, size_of(20, 2))
    );
    for (key, memory) in [("3", 50), ("4", 100), ("5", 50), ("6", 100)] {
        add_ask(&mut core, ask(key, size_of(memory, 5), None));
    }
    // The planner decides which of them fit: the two of 50 bytes.
    for (key, node_name) in [("3", "a"), ("5", "b")] {
        let input = core::Input::Placed {
            key: task_id(key),
            node: node(node_name),
        };
        apply(&mut core, input);
    }
    let pending = core.pending_size().memory_bytes;
    assert_eq!((core.used().memory_bytes, pending), (120, 200));
    // A restart reads the row, and the waiting ask continues to wait.
    let restored = core::Application {
        head: serialize_and_parse(&core.head),
        pending: serialize_and_parse(&core.pending),
        allocations: serialize_and_parse(&core.allocations),
    };
    assert_eq!(
        (restored.allocations.len(), restored.used()),
        (4, size_of(120, 12))
    );
    let mut on_nodes = restored.used_on(&node("a"));
    on_nodes.add(&restored.used_on(&node("b")));
    assert_eq!(on_nodes, size_of(120, 12));
    assert_eq!(
        (restored.pending.len(), restored.head.state),
        (2, Core::Running)
    );
    assert_eq!(restored.pending_size().memory_bytes, 200);
    assert_eq!(
        restored.head.submitted_at,
        time(0),
        "the age of the application is that of its first ask"
    );
}

#[test]
fn a_task_for_a_dead_application_is_refused_with_its_failure() {
    let mut partition = Partition::new(Limits::default());
    let name = app("app-1");
    let (groups, policy) = (vec![group("g", 1, size(1, 0))], Policy::default());
    partition
        .add("jobs", &name, metadata(groups, policy), time(1))
        .unwrap();
    partition.tick(time(2));
    let message = ToFront::Rejected {
        reason: "queue is full".to_owned(),
    };
    partition.apply_core_message(&name, message, time(3));
    let refused = partition
        .add_task(&name, &task_id("t"), TaskSpec::default(), time(4))
        .unwrap_err();
    let TaskNotAdded::Dead { state, failure } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(state, Front::Failed);
    assert_eq!(
        failure.unwrap().message,
        "ApplicationRejected: queue is full"
    );
    // The id of a removed application can be used again.
    let result = partition
        .add("jobs", &name, in_queue("root.a"), time(5))
        .unwrap();
    assert!(matches!(result, Added::Existing { .. }));
    partition.remove(&name, false).unwrap();
    let result = partition
        .add("jobs", &name, in_queue("root.a"), time(6))
        .unwrap();
    assert_eq!(result, Added::Created);
    let changes = partition.take_changes();
    assert_eq!((changes.removed.len(), changes.heads.len()), (1, 1));
    assert_eq!(changes.heads[0].state, Front::New);
}

#[test]
fn a_confirmation_for_a_removed_application_is_answered() {
    let mut partition = Partition::new(Limits::default());
    let name = app("app-1");
    assert!(partition.confirm(&name, &task_id("t"), time(1)).is_none());
    partition
        .add("jobs", &name, in_queue("root.a"), time(1))
        .unwrap();
    partition
        .add_task(&name, &task_id("t"), TaskSpec::default(), time(1))
        .unwrap();
    let result = partition.confirm(&name, &task_id("t"), time(1)).unwrap();
    assert_eq!(
        (result.applied, result.reason),
        (false, Some(Reason::NoRelease))
    );
    let unknown = partition.apply_to_task(&name, &task_id("u"), Event::Complete, time(1));
    assert!(unknown.is_none());
    partition.remove(&name, true).unwrap();
    let result = partition.confirm(&name, &task_id("t"), time(2)).unwrap();
    assert_eq!(
        (result.applied, result.reason),
        (false, Some(Reason::ApplicationGone))
    );
    let late = ToFront::Allocated {
        key: task_id("t"),
        node: node("a"),
    };
    let step = partition.apply_core_message(&name, late, time(3));
    assert_eq!(step.effects, [Effect::ToCore(ToCore::Remove)]);
}
