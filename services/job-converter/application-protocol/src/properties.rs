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
enum Happens {
    Ticks(u64),
    Task(u8, u64, bool),
    Tell(u8, Event),
    Place(u8, u8),
    Pass(u64, u64, bool),
    Lose(u8),
    Preempt(u8),
    GiveBack(u8),
    Confirm(u8),
    Complete,
    Fail,
    Kill,
    Mute,
    Speak,
    Again,
}

fn happens() -> impl Strategy<Value = Happens> {
    let event = prop::sample::select(Event::ALL.to_vec());
    prop_oneof![
        6 => prop_oneof![Just(1), Just(1_000), Just(31_000)].prop_map(Happens::Ticks),
        4 => (0..4_u8, 1..5_u64, any::<bool>()).prop_map(|(t, s, g)| Happens::Task(t, s, g)),
        2 => (0..4_u8, event).prop_map(|(t, e)| Happens::Tell(t, e)),
        4 => (0..4_u8, 0..3_u8).prop_map(|(t, n)| Happens::Place(t, n)),
        6 => (0..8_u64, 0..8_u64, any::<bool>()).prop_map(|(a, b, o)| Happens::Pass(a, b, o)),
        1 => (0..3_u8).prop_map(Happens::Lose),
        1 => (0..6_u8).prop_map(Happens::Preempt),
        1 => (0..6_u8).prop_map(Happens::GiveBack),
        2 => (0..4_u8).prop_map(Happens::Confirm),
        1 => Just(Happens::Complete),
        1 => Just(Happens::Fail),
        1 => Just(Happens::Kill),
        1 => Just(Happens::Mute),
        2 => Just(Happens::Speak),
        1 => Just(Happens::Again),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(hard, partial, whole)| Policy {
        placeholder_timeout_ms: 60_000,
        style: if hard { Style::Hard } else { Style::Soft },
        admission: if partial {
            Admission::Partial
        } else {
            Admission::Atomic
        },
        gang_admission_timeout_ms: 90_000,
        when_short: if whole {
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
fn may_be_applied(event: Event) -> bool {
    !matches!(
        event,
        Event::Allocate | Event::Init | Event::Submit | Event::Reject
    )
}

fn happen(fleet: &mut TestFleet, what: Happens) {
    let submitted = fleet.core.is_some();
    match what {
        Happens::Ticks(ms) => fleet.after(ms),
        Happens::Task(number, amount, in_group) => {
            let new = !fleet.front.tasks.contains_key(name(number).as_str());
            if new && !fleet.front.head.state.is_dead() {
                fleet.task(&name(number), size(amount, 0), in_group.then_some("g"));
            }
        }
        Happens::Tell(number, event) if may_be_applied(event) => {
            fleet.apply_to_task(&name(number), event);
        }
        Happens::Place(number, on) if submitted => {
            fleet.place(&name(number), NODES[usize::from(on)]);
        }
        Happens::Pass(a, b, open) if submitted => {
            let mut spaces = vec![space("a", size(a, 0)), space("b", size(b, 0))];
            spaces[0].open = open;
            fleet.pass(spaces);
        }
        Happens::Lose(number) if submitted => {
            let node = node(NODES[usize::from(number)]);
            fleet.core(core::Input::NodeLost { node });
        }
        Happens::Preempt(number) if submitted => {
            let mut keys = fleet.half().allocations.keys().cloned();
            if let Some(key) = keys.nth(usize::from(number)) {
                fleet.core(core::Input::Preempt {
                    key,
                    termination: Termination::PreemptedByScheduler,
                });
            }
        }
        Happens::GiveBack(number) => return_placeholder(fleet, number),
        Happens::Confirm(number) => {
            fleet.apply(Input::Confirmed {
                id: id(&name(number)),
            });
        }
        Happens::Complete => {
            fleet.apply(Input::Complete);
        }
        Happens::Fail => {
            fleet.apply(Input::Fail { reason: None });
        }
        Happens::Kill => {
            fleet.apply(Input::Kill);
        }
        Happens::Mute => fleet.mute = true,
        Happens::Speak => fleet.speak(),
        Happens::Again => repeat_messages(fleet),
        _ => {}
    }
}

fn return_placeholder(fleet: &mut TestFleet, number: u8) {
    let tasks = fleet.front.tasks.values();
    let mut held = tasks.filter(|it| it.placeholder && !it.state.is_terminated());
    let placeholder = held.nth(usize::from(number)).map(|it| it.id.clone());
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

fn sums_add_up(half: &core::Application) {
    let mut on_nodes = Size::default();
    for name in NODES {
        on_nodes.add(&half.used_on(&node(name)));
    }
    let mut elsewhere = Size::default();
    for held in half.allocations.values() {
        if let Some((ask, on)) = &held.successor
            && *on != held.node
        {
            elsewhere.add(&ask.size);
        }
    }
    let mut booked = half.used();
    booked.add(&elsewhere);
    assert_eq!(booked, on_nodes);
    for group in half.head.groups.values() {
        assert!(group.replaced + group.timedout <= group.count, "{group:?}");
    }
}

/// Returns a fleet with a complete gang whose placeholders are all replaced by tasks.
fn at_work(fleet: TestFleet, members: u32) -> TestFleet {
    let mut fleet = fleet.begun();
    let spaces = || NODES.map(|name| space(name, size(2, 0))).to_vec();
    fleet.pass(spaces());
    for number in 0..4 {
        if u32::from(number) < members {
            fleet.task(&name(number), size(2, 0), Some("g"));
        }
    }
    fleet.tick();
    fleet.pass(spaces());
    fleet
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn in_the_end_both_sides_agree(
        policy in policies(),
        members in 0..4_u32,
        works in any::<bool>(),
        story in prop::collection::vec(happens(), 1..60),
    ) {
        let groups = match members {
            0 => Vec::new(),
            _ => vec![group("g", members, size(2, 0))],
        };
        let mut fleet = TestFleet::new(groups, policy);
        if works {
            fleet = at_work(fleet, members);
        }
        for what in story {
            happen(&mut fleet, what);
            if let Some(half) = &fleet.core {
                sums_add_up(half);
                let over = matches!(
                    half.head.state,
                    core::State::Completing | core::State::Completed
                );
                prop_assert!(!over || !half.owes_members(), "{:?}", half.head.groups);
            }
        }
        fleet.speak();
        if let Some(half) = &fleet.core {
            // Every ask and allocation of the core belongs to a task of the frontend.
            for key in half.allocations.keys().chain(half.pending.keys()) {
                let task = fleet.front.tasks.get(key);
                let alive = task.is_some_and(|it| !it.state.is_terminated());
                prop_assert!(alive, "{key} is taken for {task:?}");
            }
            // An atomic gang holds nothing before it holds everything.
            let state = half.head.state;
            if policy.admission == Admission::Atomic && state == core::State::Accepted {
                let held = fleet.placeholders().len();
                prop_assert!(held == 0 || half.head.formed, "{held} of {members}");
            }
        }
    }
}
