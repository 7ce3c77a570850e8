//! Properties of random histories of one application. In the end both machines agree, and no
//! allocation is left without a live task.

use hayward_vocabulary::Size;
use proptest::prelude::*;

use crate::core;
use crate::frontend::Input;
use crate::gang_policy::{Admission, Policy, Style, WhenShort};
use crate::messages::{Termination, ToCore, ToFront};
use crate::task::Event;
use crate::test_application::{TestApplication, group, node, size, space, task_id};

/// One step of a history. Numbers select a task, a node or an allocation.
#[derive(Debug, Clone, Copy)]
enum TestEvent {
    Advance(u64),
    AddTask {
        task: u8,
        amount: u64,
        in_group: bool,
    },
    TaskEvent {
        task: u8,
        event: Event,
    },
    PlaceTask {
        task: u8,
        node: u8,
    },
    /// Runs the admission and replacement passes with this much free space on the nodes a and b.
    RunPass {
        free_a: u64,
        free_b: u64,
        is_a_open: bool,
    },
    LoseNode(u8),
    Preempt(u8),
    ReturnPlaceholder(u8),
    Confirm(u8),
    Complete,
    Fail,
    Kill,
    PauseMessages,
    ResumeMessages,
    RepeatMessages,
}

fn test_events() -> impl Strategy<Value = TestEvent> {
    let event = prop::sample::select(Event::ALL.to_vec());
    prop_oneof![
        6 => prop_oneof![Just(1), Just(1_000), Just(31_000)].prop_map(TestEvent::Advance),
        4 => (0..4_u8, 1..5_u64, any::<bool>()).prop_map(|(task, amount, in_group)| {
            TestEvent::AddTask { task, amount, in_group }
        }),
        2 => (0..4_u8, event).prop_map(|(task, event)| TestEvent::TaskEvent { task, event }),
        4 => (0..4_u8, 0..3_u8).prop_map(|(task, node)| TestEvent::PlaceTask { task, node }),
        6 => (0..8_u64, 0..8_u64, any::<bool>())
            .prop_map(|(free_a, free_b, is_a_open)| {
                TestEvent::RunPass { free_a, free_b, is_a_open }
            }),
        1 => (0..3_u8).prop_map(TestEvent::LoseNode),
        1 => (0..6_u8).prop_map(TestEvent::Preempt),
        1 => (0..6_u8).prop_map(TestEvent::ReturnPlaceholder),
        2 => (0..4_u8).prop_map(TestEvent::Confirm),
        1 => Just(TestEvent::Complete),
        1 => Just(TestEvent::Fail),
        1 => Just(TestEvent::Kill),
        1 => Just(TestEvent::PauseMessages),
        2 => Just(TestEvent::ResumeMessages),
        1 => Just(TestEvent::RepeatMessages),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(hard, partial, release_gang)| Policy {
        placeholder_timeout_ms: 60_000,
        style: if hard { Style::Hard } else { Style::Soft },
        admission: if partial {
            Admission::Partial
        } else {
            Admission::Atomic
        },
        gang_admission_timeout_ms: 90_000,
        when_short: if release_gang {
            WhenShort::ReleaseWhole
        } else {
            WhenShort::Repair { grace_ms: 20_000 }
        },
    })
}

const NODES: [&str; 3] = ["a", "b", "c"];

fn task_name(number: u8) -> String {
    format!("t{number}")
}

/// Returns true if a request may apply the event. Other events come only from the core and the
/// tick.
fn is_request_event(event: Event) -> bool {
    !matches!(
        event,
        Event::Allocate | Event::Init | Event::Submit | Event::Reject
    )
}

fn apply_event(test_app: &mut TestApplication, event: TestEvent) {
    let is_submitted = test_app.core.is_some();
    match event {
        TestEvent::Advance(ms) => test_app.advance(ms),
        TestEvent::AddTask {
            task,
            amount,
            in_group,
        } => {
            let is_new = !test_app.front.tasks.contains_key(task_name(task).as_str());
            if is_new && !test_app.front.head.state.is_dead() {
                test_app.add_task(&task_name(task), size(amount, 0), in_group.then_some("g"));
            }
        }
        TestEvent::TaskEvent { task, event } if is_request_event(event) => {
            test_app.apply_to_task(&task_name(task), event);
        }
        TestEvent::PlaceTask { task, node } if is_submitted => {
            test_app.place_task(&task_name(task), NODES[usize::from(node)]);
        }
        TestEvent::RunPass {
            free_a,
            free_b,
            is_a_open,
        } if is_submitted => {
            let mut spaces = vec![space("a", size(free_a, 0)), space("b", size(free_b, 0))];
            spaces[0].open = is_a_open;
            test_app.run_pass(spaces);
        }
        TestEvent::LoseNode(number) if is_submitted => {
            let node = node(NODES[usize::from(number)]);
            test_app.apply_to_core(core::Input::NodeLost { node });
        }
        TestEvent::Preempt(number) if is_submitted => preempt_allocation(test_app, number),
        TestEvent::ReturnPlaceholder(number) => return_placeholder(test_app, number),
        TestEvent::Confirm(number) => {
            test_app.apply(Input::Confirmed {
                id: task_id(&task_name(number)),
            });
        }
        TestEvent::Complete => {
            test_app.apply(Input::Complete);
        }
        TestEvent::Fail => {
            test_app.apply(Input::Fail { reason: None });
        }
        TestEvent::Kill => {
            test_app.apply(Input::Kill);
        }
        TestEvent::PauseMessages => test_app.messages_paused = true,
        TestEvent::ResumeMessages => test_app.resume_messages(),
        TestEvent::RepeatMessages => repeat_messages(test_app),
        _ => {}
    }
}

fn preempt_allocation(test_app: &mut TestApplication, number: u8) {
    let mut keys = test_app.core().allocations.keys().cloned();
    if let Some(key) = keys.nth(usize::from(number)) {
        test_app.apply_to_core(core::Input::Preempt {
            key,
            termination: Termination::PreemptedByScheduler,
        });
    }
}

fn return_placeholder(test_app: &mut TestApplication, number: u8) {
    let tasks = test_app.front.tasks.values();
    let mut placeholders = tasks.filter(|it| it.placeholder && !it.state.is_terminated());
    let placeholder = placeholders
        .nth(usize::from(number))
        .map(|it| it.id.clone());
    if let Some(id) = placeholder {
        test_app.apply_to_task(id.as_str(), Event::Complete);
    }
}

/// Repeats the last messages of both machines.
fn repeat_messages(test_app: &mut TestApplication) {
    if let Some(message) = test_app.to_front.last().cloned()
        && !matches!(message, ToFront::Updated { .. } | ToFront::Rejected { .. })
    {
        test_app.apply(Input::Core(message));
    }
    if let Some(message) = test_app.to_core.last().cloned()
        && test_app.core.is_some()
        && !matches!(message, ToCore::Submit(_) | ToCore::Ask(_))
    {
        test_app.apply_to_core(core::Input::Front(message));
    }
}

fn assert_usage_is_consistent(core_application: &core::Application) {
    let mut on_nodes = Size::default();
    for name in NODES {
        on_nodes.add(&core_application.used_on(&node(name)));
    }
    let mut successors_on_other_nodes = Size::default();
    for allocation in core_application.allocations.values() {
        if let Some((ask, on)) = &allocation.successor
            && *on != allocation.node
        {
            successors_on_other_nodes.add(&ask.size);
        }
    }
    let mut total_used = core_application.used();
    total_used.add(&successors_on_other_nodes);
    assert_eq!(total_used, on_nodes);
    for group in core_application.head.groups.values() {
        assert!(group.replaced + group.timedout <= group.count, "{group:?}");
    }
}

/// Returns an application with a complete gang whose placeholders are all replaced by tasks.
fn with_running_gang(test_app: TestApplication, members: u32) -> TestApplication {
    let mut test_app = test_app.after_submission();
    let spaces = || NODES.map(|name| space(name, size(2, 0))).to_vec();
    test_app.run_pass(spaces());
    for number in 0..4 {
        if u32::from(number) < members {
            test_app.add_task(&task_name(number), size(2, 0), Some("g"));
        }
    }
    test_app.tick();
    test_app.run_pass(spaces());
    test_app
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn both_machines_agree_after_any_history(
        policy in policies(),
        members in 0..4_u32,
        starts_running in any::<bool>(),
        events in prop::collection::vec(test_events(), 1..60),
    ) {
        let groups = match members {
            0 => Vec::new(),
            _ => vec![group("g", members, size(2, 0))],
        };
        let mut test_app = TestApplication::new(groups, policy);
        if starts_running {
            test_app = with_running_gang(test_app, members);
        }
        for event in events {
            apply_event(&mut test_app, event);
            if let Some(core_application) = &test_app.core {
                assert_usage_is_consistent(core_application);
                let is_over = matches!(
                    core_application.head.state,
                    core::State::Completing | core::State::Completed
                );
                let lacks_successors = core_application.lacks_successors();
                prop_assert!(!is_over || !lacks_successors, "{:?}", core_application.head.groups);
            }
        }
        test_app.resume_messages();
        if let Some(core_application) = &test_app.core {
            // Every ask and allocation of the core belongs to a task of the frontend.
            for key in core_application.allocations.keys().chain(core_application.pending.keys()) {
                let task = test_app.front.tasks.get(key);
                let alive = task.is_some_and(|it| !it.state.is_terminated());
                prop_assert!(alive, "{key} belongs to {task:?}");
            }
            // An atomic gang holds nothing before it holds everything.
            let state = core_application.head.state;
            if policy.admission == Admission::Atomic && state == core::State::Accepted {
                let held = test_app.placeholders().len();
                prop_assert!(held == 0 || core_application.head.formed, "{held} of {members}");
            }
        }
    }
}
