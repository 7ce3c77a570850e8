//! Replacement of placeholders by real tasks.

use super::{complete_gang, lose_node, policy};
use crate::core;
use crate::frontend;
use crate::messages::{Termination, ToFront};
use crate::policy::{Policy, Style};
use crate::reason::Reason;
use crate::task::State as Task;
use crate::test_fleet::{TestFleet, group, id, node, size, space};

#[test]
fn an_equal_task_replaces_a_placeholder_and_starts_on_its_node() {
    let mut fleet = complete_gang(policy(Style::Soft));
    fleet.add_task("real", size(2, 0), Some("g"));
    fleet.tick();
    assert_eq!(fleet.place_task("real", "c"), Some(Reason::HasPlaceholder));
    fleet.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    assert_eq!(fleet.task_state("real"), Task::Allocated);
    let start = frontend::Effect::Start {
        task: id("real"),
        node: node("a"),
    };
    assert!(fleet.effects.contains(&start));
    assert_eq!(fleet.counters("g"), (2, 1, 0));
    assert_eq!(fleet.core_app().used(), size(4, 0));
    assert_eq!(fleet.placeholders().len(), 1);
}

#[test]
fn a_closed_node_sends_the_real_task_elsewhere_and_charges_the_node_at_once() {
    let mut fleet = complete_gang(policy(Style::Soft));
    fleet.add_task("real", size(1, 0), Some("g"));
    fleet.tick();
    fleet.messages_paused = true;
    let mut spaces = vec![
        space("a", size(0, 0)),
        space("b", size(0, 0)),
        space("c", size(1, 0)),
    ];
    spaces[0].open = false;
    spaces[1].open = false;
    fleet.run_pass(spaces);
    assert_eq!(fleet.core_app().used_on(&node("c")), size(1, 0));
    assert_eq!(
        fleet.core_app().used(),
        size(4, 0),
        "its queue is not charged twice"
    );
    fleet.resume_messages();
    assert_eq!(fleet.core_app().used(), size(3, 0));
    assert_eq!(fleet.core_app().allocations[&id("real")].node, node("c"));
}

#[test]
fn one_more_real_task_than_placeholders_is_placed_as_any_other() {
    let mut fleet = complete_gang(policy(Style::Soft));
    for name in ["r1", "r2", "r3"] {
        fleet.add_task(name, size(2, 0), Some("g"));
    }
    fleet.tick();
    fleet.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    assert_eq!(fleet.counters("g"), (2, 2, 0));
    assert_eq!(fleet.place_task("r3", "c"), None);
    assert_eq!(fleet.core_app().used(), size(6, 0));
}

/// Starts a replacement. The placeholder is on `a`, and the real task moves to the node `to`.
fn replacement_in_progress(to: &str) -> TestFleet {
    let mut fleet = TestFleet::new(vec![group("g", 1, size(2, 0))], Policy::default()).submitted();
    fleet.run_pass(vec![space("a", size(2, 0))]);
    fleet.add_task("real", size(2, 0), Some("g"));
    fleet.tick();
    fleet.messages_paused = true;
    let mut spaces = vec![space("a", size(0, 0)), space("b", size(2, 0))];
    spaces[0].open = to == "a";
    fleet.run_pass(spaces);
    let to = node(to);
    let replacing =
        |it: &core::Effect| matches!(it, core::Effect::Replacing { node, .. } if *node == to);
    assert!(fleet.core_effects.iter().any(replacing));
    fleet
}

#[test]
fn a_node_loss_during_a_replacement_keeps_the_rest() {
    // Both are on the lost node: the placeholder is gone and the real ask waits again.
    let mut fleet = replacement_in_progress("a");
    lose_node(&mut fleet, "a");
    assert!(fleet.core_app().allocations.is_empty());
    assert!(fleet.core_app().pending.contains_key("real"));
    assert_eq!(fleet.counters("g"), (1, 0, 1));
    fleet.resume_messages();
    assert_eq!(
        fleet.counters("g"),
        (1, 0, 1),
        "its late confirmation changes nothing"
    );

    // Only the placeholder is on the lost node: the real task is confirmed.
    let mut fleet = replacement_in_progress("b");
    lose_node(&mut fleet, "a");
    assert_eq!(fleet.core_app().allocations[&id("real")].node, node("b"));
    assert_eq!(fleet.counters("g"), (1, 1, 0));

    // Only the real task is on the lost node: its ask waits again and the placeholder stays.
    let mut fleet = replacement_in_progress("b");
    lose_node(&mut fleet, "b");
    assert!(fleet.core_app().pending.contains_key("real"));
    let retained = fleet.core_app().allocations.values().next().unwrap();
    assert_eq!((&retained.node, retained.released), (&node("a"), None));
    assert_eq!(fleet.counters("g"), (1, 0, 0));
    // The frontend has not answered yet. The next pass can use the allocation.
    fleet.outbox.clear();
    fleet.run_pass(vec![space("a", size(0, 0))]);
    let retained = fleet.core_app().allocations.values().next().unwrap();
    assert_eq!(retained.released, Some(Termination::PlaceholderReplaced));
}

/// The owner completes the placeholder before the exchange.
#[test]
fn a_replacing_task_waits_again_when_its_placeholder_is_completed() {
    let ends: [fn(&mut TestFleet); 2] = [
        |fleet| {
            let placeholder = fleet.placeholders()[0].clone();
            fleet.apply_to_task(placeholder.as_str(), crate::task::Event::Complete);
        },
        |fleet| {
            fleet.apply(frontend::Input::Fail { reason: None });
        },
    ];
    for end in ends {
        let mut fleet = core_with_chosen_placeholder();
        end(&mut fleet);
        assert!(fleet.core_app().allocations.is_empty());
        assert!(fleet.core_app().pending.contains_key("real"));
        assert_eq!(fleet.counters("g"), (1, 0, 1));
        assert_eq!(fleet.task_state("real"), Task::Scheduling);
        assert_eq!(
            fleet.place_task("real", "b"),
            None,
            "it is placed as any other"
        );
        assert_eq!(fleet.task_state("real"), Task::Allocated);
    }
}

/// The task is completed before the exchange, so no member is lost.
#[test]
fn a_task_that_is_completed_during_its_replacement_is_fulfilled() {
    let mut fleet = core_with_chosen_placeholder();
    fleet.apply_to_task("real", crate::task::Event::Complete);
    let placeholder = fleet.placeholders()[0].clone();
    assert_eq!(fleet.core_app().allocations[&placeholder].released, None);
    fleet.apply(frontend::Input::Core(ToFront::Release {
        keys: vec![placeholder],
        termination: Termination::PlaceholderReplaced,
    }));
    assert_eq!(fleet.counters("g"), (1, 1, 0));
    assert_eq!(fleet.head().groups["g"].fulfilled, 1);
    assert!(fleet.core_app().lost_members().is_empty());
}

/// Creates a fleet whose core has chosen a placeholder that the frontend does not know yet.
fn core_with_chosen_placeholder() -> TestFleet {
    let mut fleet = TestFleet::new(vec![group("g", 1, size(2, 0))], Policy::default()).submitted();
    fleet.run_pass(vec![space("a", size(2, 0))]);
    fleet.add_task("real", size(2, 0), Some("g"));
    fleet.tick();
    let core = fleet.core.as_mut().unwrap();
    let step = core.replace(&mut [space("a", size(0, 0))], fleet.now);
    assert!(step.applied());
    fleet
}
