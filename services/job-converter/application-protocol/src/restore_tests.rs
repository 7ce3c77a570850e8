//! Tests that both state machines are restored exactly from their rows.

use crate::gang_policy::Policy;
use crate::test_application::{TestApplication, app, group, metadata, size};
use crate::{core, frontend, task};

#[test]
fn both_machines_are_restored_from_their_rows() {
    let groups = vec![group("g", 2, size(1, 0))];
    let mut test_app = TestApplication::new(groups.clone(), Policy::default()).after_submission();
    test_app.add_task("t", size(1, 0), Some("g"));
    let json = serde_json::to_string(&test_app.front.head).unwrap();
    let head: frontend::Head = serde_json::from_str(&json).unwrap();
    assert_eq!(head, test_app.front.head);
    let tasks: Vec<_> = test_app.front.tasks.values().cloned().collect();
    let json = serde_json::to_string(&tasks).unwrap();
    let tasks: Vec<task::Task> = serde_json::from_str(&json).unwrap();
    let restored = frontend::Application::from_rows(head, tasks);
    assert_eq!(restored.tasks, test_app.front.tasks);

    let core_application = test_app.core();
    let json = serde_json::to_string(&(
        &core_application.head,
        &core_application.allocations,
        &core_application.pending,
    ))
    .unwrap();
    let (head, allocations, pending) = serde_json::from_str(&json).unwrap();
    let restored = core::Application {
        head,
        pending,
        allocations,
    };
    assert_eq!(restored, *core_application);
    // The rows also name the application and its metadata.
    assert_eq!(restored.head.submission.id, app("app-1"));
    assert_eq!(
        metadata(groups, Policy::default()),
        test_app.front.head.metadata
    );
}
