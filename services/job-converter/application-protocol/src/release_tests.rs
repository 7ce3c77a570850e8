//! Tests of the release of allocations: late allocations and preemptions.

use crate::core;
use crate::frontend::Input;
use crate::messages::{Termination, ToCore};
use crate::no_change_reason::Reason;
use crate::task::{Event, State as Task};
use crate::test_application::{TestApplication, size, task_id};

#[test]
fn an_allocation_that_arrives_after_the_end_of_its_task_is_released() {
    let mut test_app = TestApplication::without_groups().after_submission();
    test_app.add_task("t", size(1, 0), None);
    test_app.tick();
    test_app.messages_paused = true;
    test_app.apply_to_task("t", Event::Complete);
    test_app.place_task("t", "a");
    assert_eq!(test_app.task_state("t"), Task::Completed);
    test_app.resume_messages();
    assert!(test_app.core().allocations.is_empty());
    let release = ToCore::ReleaseAllocation {
        key: task_id("t"),
        termination: Termination::StoppedByRm,
    };
    assert!(test_app.to_core.contains(&release));
}

#[test]
fn a_preemption_is_confirmed_once() {
    let mut test_app = TestApplication::without_groups().after_submission();
    test_app.add_task("t", size(1, 0), None);
    test_app.tick();
    test_app.place_task("t", "a");
    test_app.apply_to_task("t", Event::Bind);
    test_app.apply_to_core(core::Input::Preempt {
        key: task_id("t"),
        termination: Termination::PreemptedByScheduler,
    });
    assert_eq!(test_app.core().used(), size(1, 0));
    assert_eq!(test_app.task_state("t"), Task::Killing);
    test_app.to_core.clear();
    assert_eq!(test_app.apply(Input::Confirmed { id: task_id("t") }), None);
    let confirm = ToCore::Confirm {
        key: task_id("t"),
        termination: Termination::PreemptedByScheduler,
    };
    assert_eq!(test_app.to_core, [confirm]);
    assert_eq!(
        test_app.apply(Input::Confirmed { id: task_id("t") }),
        Some(Reason::AlreadySo)
    );
    assert_eq!(test_app.core().used(), size(0, 0));
}
