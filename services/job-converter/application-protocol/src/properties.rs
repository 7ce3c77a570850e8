//! Properties of random histories: both machines agree in the end, and all allocations are
//! released.

use hayward_vocabulary::Size;
use proptest::prelude::*;

use crate::core;
use crate::frontend::Input;
use crate::messages::{Termination, ToCore, ToFront};
use crate::policy::{Admission, Policy, Style, WhenShort};
use crate::task::Event;
use crate::test_fleet::{TestFleet, group, id, node, size, space};

#[derive(Debug, Clone, Copy)]
enum TestEvent {
    Advance(u64),
    AddTask(u8, u64, bool),
    TaskEvent(u8, Event),
    Place(u8, u8),
    RunPass(u64, u64, bool),
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
        4 => (0..4_u8, 1..5_u64, any::<bool>()).prop_map(|(t, s, g)| TestEvent::AddTask(t, s, g)),
        2 => (0..4_u8, event).prop_map(|(t, e)| TestEvent::TaskEvent(t, e)),
        4 => (0..4_u8, 0..3_u8).prop_map(|(t, n)| TestEvent::Place(t, n)),
        6 => (0..8_u64, 0..8_u64, any::<bool>()).prop_map(|(a, b, o)| TestEvent::RunPass(a, b, o)),
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

fn name(number: u8) -> String {
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

fn apply_event(fleet: &mut TestFleet, event: TestEvent) {
    let is_submitted = fleet.core.is_some();
    match event {
        TestEvent::Advance(ms) => fleet.advance(ms),
        TestEvent::AddTask(number, amount, in_group) => {
            let is_new = !fleet.front.tasks.contains_key(name(number).as_str());
            if is_new && !fleet.front.head.state.is_dead() {
                fleet.add_task(&name(number), size(amount, 0), in_group.then_some("g"));
            }
        }
        TestEvent::TaskEvent(number, event) if is_request_event(event) => {
            fleet.apply_to_task(&name(number), event);
        }
        TestEvent::Place(number, on) if is_submitted => {
            fleet.place_task(&name(number), NODES[usize::from(on)]);
        }
        TestEvent::RunPass(a, b, open) if is_submitted => {
            let mut spaces = vec![space("a", size(a, 0)), space("b", size(b, 0))];
            spaces[0].open = open;
            fleet.run_pass(spaces);
        }
        TestEvent::LoseNode(number) if is_submitted => {
            let node = node(NODES[usize::from(number)]);
            fleet.core(core::Input::NodeLost { node });
        }
        TestEvent::Preempt(number) if is_submitted => {
            let mut keys = fleet.core_app().allocations.keys().cloned();
            if let Some(key) = keys.nth(usize::from(number)) {
                fleet.core(core::Input::Preempt {
                    key,
                    termination: Termination::PreemptedByScheduler,
                });
            }
        }
        TestEvent::ReturnPlaceholder(number) => return_placeholder(fleet, number),
        TestEvent::Confirm(number) => {
            fleet.apply(Input::Confirmed {
                id: id(&name(number)),
            });
        }
        TestEvent::Complete => {
            fleet.apply(Input::Complete);
        }
        TestEvent::Fail => {
            fleet.apply(Input::Fail { reason: None });
        }
        TestEvent::Kill => {
            fleet.apply(Input::Kill);
        }
        TestEvent::PauseMessages => fleet.messages_paused = true,
        TestEvent::ResumeMessages => fleet.resume_messages(),
        TestEvent::RepeatMessages => repeat_messages(fleet),
        _ => {}
    }
}

fn return_placeholder(fleet: &mut TestFleet, number: u8) {
    let tasks = fleet.front.tasks.values();
    let mut placeholders = tasks.filter(|it| it.placeholder && !it.state.is_terminated());
    let placeholder = placeholders
        .nth(usize::from(number))
        .map(|it| it.id.clone());
    if let Some(id) = placeholder {
        fleet.apply_to_task(id.as_str(), Event::Complete);
    }
}

/// Repeats the last messages of both machines.
fn repeat_messages(fleet: &mut TestFleet) {
    if let Some(message) = fleet.to_front.last().cloned()
        && !matches!(message, ToFront::Updated { .. } | ToFront::Rejected { .. })
    {
        fleet.apply(Input::Core(message));
    }
    if let Some(message) = fleet.to_core.last().cloned()
        && fleet.core.is_some()
        && !matches!(message, ToCore::Submit(_) | ToCore::Ask(_))
    {
        fleet.core(core::Input::Front(message));
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

/// Returns a fleet with a complete gang whose placeholders are all replaced by tasks.
fn with_running_gang(fleet: TestFleet, members: u32) -> TestFleet {
    let mut fleet = fleet.submitted();
    let spaces = || NODES.map(|name| space(name, size(2, 0))).to_vec();
    fleet.run_pass(spaces());
    for number in 0..4 {
        if u32::from(number) < members {
            fleet.add_task(&name(number), size(2, 0), Some("g"));
        }
    }
    fleet.tick();
    fleet.run_pass(spaces());
    fleet
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn in_the_end_both_sides_agree(
        policy in policies(),
        members in 0..4_u32,
        starts_running in any::<bool>(),
        events in prop::collection::vec(test_events(), 1..60),
    ) {
        let groups = match members {
            0 => Vec::new(),
            _ => vec![group("g", members, size(2, 0))],
        };
        let mut fleet = TestFleet::new(groups, policy);
        if starts_running {
            fleet = with_running_gang(fleet, members);
        }
        for event in events {
            apply_event(&mut fleet, event);
            if let Some(core_application) = &fleet.core {
                assert_usage_is_consistent(core_application);
                let is_over = matches!(
                    core_application.head.state,
                    core::State::Completing | core::State::Completed
                );
                let lacks_successors = core_application.lacks_successors();
                prop_assert!(!is_over || !lacks_successors, "{:?}", core_application.head.groups);
            }
        }
        fleet.resume_messages();
        if let Some(core_application) = &fleet.core {
            // Every ask and allocation of the core belongs to a task of the frontend.
            for key in core_application.allocations.keys().chain(core_application.pending.keys()) {
                let task = fleet.front.tasks.get(key);
                let alive = task.is_some_and(|it| !it.state.is_terminated());
                prop_assert!(alive, "{key} belongs to {task:?}");
            }
            // An atomic gang holds nothing before it holds everything.
            let state = core_application.head.state;
            if policy.admission == Admission::Atomic && state == core::State::Accepted {
                let held = fleet.placeholders().len();
                prop_assert!(held == 0 || core_application.head.formed, "{held} of {members}");
            }
        }
    }
}
