//! Tests of the replacement of placeholders by real tasks.

use super::{complete_gang, lose_node, policy};
use crate::core;
use crate::frontend;
use crate::gang_policy::{Policy, Style};
use crate::messages::{Termination, ToFront};
use crate::no_change_reason::Reason;
use crate::task::State as Task;
use crate::test_application::{TestApplication, group, node, size, space, task_id};

#[test]
fn an_equal_task_replaces_a_placeholder_and_starts_on_its_node() {
    let mut test_app = complete_gang(policy(Style::Soft));
    test_app.add_task("real", size(2, 0), Some("g"));
    test_app.tick();
    assert_eq!(
        test_app.place_task("real", "c"),
        Some(Reason::HasPlaceholder)
    );
    test_app.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    assert_eq!(test_app.task_state("real"), Task::Allocated);
    let start = frontend::Effect::Start {
        task: task_id("real"),
        node: node("a"),
    };
    assert!(test_app.effects.contains(&start));
    assert_eq!(test_app.counters("g"), (2, 1, 0));
    assert_eq!(test_app.core().used(), size(4, 0));
    assert_eq!(test_app.placeholders().len(), 1);
}

#[test]
fn a_closed_node_sends_the_real_task_elsewhere_and_charges_the_node_at_once() {
    let mut test_app = complete_gang(policy(Style::Soft));
    test_app.add_task("real", size(1, 0), Some("g"));
    test_app.tick();
    test_app.messages_paused = true;
    let mut spaces = vec![
        space("a", size(0, 0)),
        space("b", size(0, 0)),
        space("c", size(1, 0)),
    ];
    spaces[0].open = false;
    spaces[1].open = false;
    test_app.run_pass(spaces);
    assert_eq!(test_app.core().used_on(&node("c")), size(1, 0));
    assert_eq!(
        test_app.core().used(),
        size(4, 0),
        "the queue counts only the placeholder"
    );
    test_app.resume_messages();
    assert_eq!(test_app.core().used(), size(3, 0));
    assert_eq!(
        test_app.core().allocations[&task_id("real")].node,
        node("c")
    );
}

#[test]
fn one_more_real_task_than_placeholders_is_placed_as_any_other() {
    let mut test_app = complete_gang(policy(Style::Soft));
    for name in ["r1", "r2", "r3"] {
        test_app.add_task(name, size(2, 0), Some("g"));
    }
    test_app.tick();
    test_app.run_pass(vec![space("a", size(0, 0)), space("b", size(0, 0))]);
    assert_eq!(test_app.counters("g"), (2, 2, 0));
    assert_eq!(test_app.place_task("r3", "c"), None);
    assert_eq!(test_app.core().used(), size(6, 0));
}

/// Starts a replacement. The placeholder is on `a`, and the real task moves to the node `to`.
fn replacement_in_progress(to: &str) -> TestApplication {
    let mut test_app =
        TestApplication::new(vec![group("g", 1, size(2, 0))], Policy::default()).after_submission();
    test_app.run_pass(vec![space("a", size(2, 0))]);
    test_app.add_task("real", size(2, 0), Some("g"));
    test_app.tick();
    test_app.messages_paused = true;
    let mut spaces = vec![space("a", size(0, 0)), space("b", size(2, 0))];
    spaces[0].open = to == "a";
    test_app.run_pass(spaces);
    let to = node(to);
    let replacing =
        |it: &core::Effect| matches!(it, core::Effect::Replacing { node, .. } if *node == to);
    assert!(test_app.core_effects.iter().any(replacing));
    test_app
}

#[test]
fn a_node_loss_during_a_replacement_affects_only_what_was_on_the_node() {
    // Both are on the lost node: the placeholder is gone and the real ask waits again.
    let mut test_app = replacement_in_progress("a");
    lose_node(&mut test_app, "a");
    assert!(test_app.core().allocations.is_empty());
    assert!(test_app.core().pending.contains_key("real"));
    assert_eq!(test_app.counters("g"), (1, 0, 1));
    test_app.resume_messages();
    assert_eq!(
        test_app.counters("g"),
        (1, 0, 1),
        "the late confirmation changes nothing"
    );

    // Only the placeholder is on the lost node: the real task is confirmed.
    let mut test_app = replacement_in_progress("b");
    lose_node(&mut test_app, "a");
    assert_eq!(
        test_app.core().allocations[&task_id("real")].node,
        node("b")
    );
    assert_eq!(test_app.counters("g"), (1, 1, 0));

    // Only the real task is on the lost node: its ask waits again and the placeholder stays.
    let mut test_app = replacement_in_progress("b");
    lose_node(&mut test_app, "b");
    assert!(test_app.core().pending.contains_key("real"));
    let retained = test_app.core().allocations.values().next().unwrap();
    assert_eq!((&retained.node, retained.released), (&node("a"), None));
    assert_eq!(test_app.counters("g"), (1, 0, 0));
    // The frontend has not answered yet. The next pass can use the allocation.
    test_app.outbox.clear();
    test_app.run_pass(vec![space("a", size(0, 0))]);
    let retained = test_app.core().allocations.values().next().unwrap();
    assert_eq!(retained.released, Some(Termination::PlaceholderReplaced));
}

/// The owner completes the placeholder before the exchange.
#[test]
fn a_replacing_task_waits_again_when_its_placeholder_is_completed() {
    let ends: [fn(&mut TestApplication); 2] = [
        |test_app| {
            let placeholder = test_app.placeholders()[0].clone();
            test_app.apply_to_task(placeholder.as_str(), crate::task::Event::Complete);
        },
        |test_app| {
            test_app.apply(frontend::Input::Fail { reason: None });
        },
    ];
    for end in ends {
        let mut test_app = application_with_chosen_placeholder();
        end(&mut test_app);
        assert!(test_app.core().allocations.is_empty());
        assert!(test_app.core().pending.contains_key("real"));
        assert_eq!(test_app.counters("g"), (1, 0, 1));
        assert_eq!(test_app.task_state("real"), Task::Scheduling);
        assert_eq!(
            test_app.place_task("real", "b"),
            None,
            "the task is placed as any other"
        );
        assert_eq!(test_app.task_state("real"), Task::Allocated);
    }
}

/// The task is completed before the exchange, so no member is lost.
#[test]
fn a_task_that_is_completed_during_its_replacement_is_fulfilled() {
    let mut test_app = application_with_chosen_placeholder();
    test_app.apply_to_task("real", crate::task::Event::Complete);
    let placeholder = test_app.placeholders()[0].clone();
    assert_eq!(test_app.core().allocations[&placeholder].released, None);
    test_app.apply(frontend::Input::Core(ToFront::Release {
        keys: vec![placeholder],
        termination: Termination::PlaceholderReplaced,
    }));
    assert_eq!(test_app.counters("g"), (1, 1, 0));
    assert_eq!(test_app.core_head().groups["g"].fulfilled, 1);
    assert!(test_app.core().lost_members().is_empty());
}

/// Creates an application whose core has chosen a placeholder that the frontend does not know yet.
fn application_with_chosen_placeholder() -> TestApplication {
    let mut test_app =
        TestApplication::new(vec![group("g", 1, size(2, 0))], Policy::default()).after_submission();
    test_app.run_pass(vec![space("a", size(2, 0))]);
    test_app.add_task("real", size(2, 0), Some("g"));
    test_app.tick();
    let core = test_app.core.as_mut().unwrap();
    let step = core.replace(&mut [space("a", size(0, 0))], test_app.now);
    assert!(step.is_applied());
    test_app
}
