//! Bulk requests for tasks: one result per task in order, or all or nothing (A16).

use hayward_job_converter_api::applications::BulkTasksAdded;
use hayward_service::client::{Client, ClientError, Response};
use http::Method;
use serde_json::{Value, json};

use super::{
    expect_problem, fixture, put_application, put_task, set_short_tick, task_body,
    task_body_of_group,
};
use crate::fixture::Fixture;

async fn post_tasks(
    client: &Client,
    path: &str,
    tasks: &[(&str, Value)],
) -> Result<Response<BulkTasksAdded>, ClientError> {
    let named = |(id, task): &(&str, Value)| json!({ "id": id, "task": task });
    let tasks: Vec<Value> = tasks.iter().map(named).collect();
    let call = client.call(Method::POST, format!("/v1/applications/{path}"));
    call.body(&json!({ "tasks": tasks }))
        .send_for_response()
        .await
}

fn result_rows(added: &BulkTasksAdded) -> Vec<(&str, bool, bool)> {
    let results = added.results.iter();
    results
        .map(|it| (it.id.as_str(), it.created, it.error.is_some()))
        .collect()
}

/// A faulty task does not affect the others, unless the request is atomic (A16).
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_has_one_result_per_task_and_keeps_existing_ones() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "b", &task_body()).await;
    let invalid_task = json!({ "command": [] });
    let bodies = [
        ("a", task_body()),
        ("b", task_body()),
        ("c", invalid_task.clone()),
        ("tg-x", task_body()),
        ("a", task_body()),
    ];
    let dry_run = post_tasks(&ann, "app/tasks?dry_run=true", &bodies)
        .await
        .unwrap();
    assert_eq!(dry_run.status.as_u16(), 200);
    assert_eq!(fixture.application("app").await.tasks.len(), 1);
    let answer = post_tasks(&ann, "app/tasks", &bodies).await.unwrap();
    assert_eq!(answer.status.as_u16(), 201);
    let expected = [
        ("a", true, false),
        ("b", false, false),
        ("c", false, true),
        ("tg-x", false, true),
        ("a", false, false),
    ];
    assert_eq!(result_rows(&answer.body), expected);
    assert_eq!(fixture.application("app").await.tasks.len(), 2);

    let refused = post_tasks(
        &ann,
        "app/tasks?atomic=true",
        &[("d", task_body()), ("e", invalid_task)],
    )
    .await;
    let (status, problem) = expect_problem(refused);
    assert_eq!(status, 422);
    assert_eq!(
        problem["errors"][0]["pointer"],
        json!("/tasks/1/task/command")
    );
    assert_eq!(fixture.application("app").await.tasks.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_beyond_the_limit_adds_no_task() {
    let fixture = Fixture::with_settings(|settings| {
        set_short_tick(settings);
        settings.max_user_application_tasks = 3;
    })
    .await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "a", &task_body()).await;
    let four = ["a", "b", "c", "d"].map(|id| (id, task_body()));
    assert_eq!(
        expect_problem(post_tasks(&ann, "app/tasks", &four).await).0,
        429
    );
    assert_eq!(fixture.application("app").await.tasks.len(), 1);
    assert!(post_tasks(&ann, "app/tasks", &four[..3]).await.is_ok());
    let bob = fixture.user("bob");
    assert_eq!(
        expect_problem(post_tasks(&bob, "app/tasks", &four[..1]).await).0,
        404
    );
    assert_eq!(
        expect_problem(post_tasks(&ann, "app/tasks", &[]).await).0,
        422
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_bulk_are_requested_with_the_size_of_their_group() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    let two = [("x", task_body()), ("y", task_body_of_group("unknown"))];
    post_tasks(&ann, "app/tasks", &two).await.unwrap();
    let gib = 1 << 30;
    for id in ["x", "y"] {
        let demand = fixture.task_demand("app", id).await;
        assert_eq!(demand.size.memory_bytes, gib, "{demand:?}");
    }
}
