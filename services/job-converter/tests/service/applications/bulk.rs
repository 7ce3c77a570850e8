//! Bulk requests for tasks: one result per task in order, or all or nothing (A16).

use hayward_job_converter_api::applications::BulkTasksAdded;
use hayward_service::client::{Client, ClientError, Response};
use http::Method;
use serde_json::{Value, json};

use super::{fixture, problem, put, put_task, quick, task, task_of_group};
use crate::fixture::Fixture;

async fn post(
    client: &Client,
    path: &str,
    tasks: &[(&str, Value)],
) -> Result<Response<BulkTasksAdded>, ClientError> {
    let named = |(id, task): &(&str, Value)| json!({ "id": id, "task": task });
    let tasks: Vec<Value> = tasks.iter().map(named).collect();
    let call = client.call(Method::POST, format!("/v1/applications/{path}"));
    call.body(&json!({ "tasks": tasks })).answer().await
}

fn reported(added: &BulkTasksAdded) -> Vec<(&str, bool, bool)> {
    let results = added.results.iter();
    results
        .map(|it| (it.id.as_str(), it.created, it.error.is_some()))
        .collect()
}

/// API rule (A16).
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_has_one_result_per_task_and_keeps_existing_ones() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "b", &task()).await;
    let nothing = json!({ "command": [] });
    let some = [
        ("a", task()),
        ("b", task()),
        ("c", nothing.clone()),
        ("tg-x", task()),
        ("a", task()),
    ];
    let tried = post(&ann, "app/tasks?dry_run=true", &some).await.unwrap();
    assert_eq!(tried.status.as_u16(), 200);
    assert_eq!(fixture.app("app").await.tasks.len(), 1);
    let answer = post(&ann, "app/tasks", &some).await.unwrap();
    assert_eq!(answer.status.as_u16(), 201);
    let expected = [
        ("a", true, false),
        ("b", false, false),
        ("c", false, true),
        ("tg-x", false, true),
        ("a", false, false),
    ];
    assert_eq!(reported(&answer.body), expected);
    assert_eq!(fixture.app("app").await.tasks.len(), 2);

    let refused = post(
        &ann,
        "app/tasks?atomic=true",
        &[("d", task()), ("e", nothing)],
    )
    .await;
    let (status, reported) = problem(refused);
    assert_eq!(status, 422);
    assert_eq!(
        reported["errors"][0]["pointer"],
        json!("/tasks/1/task/command")
    );
    assert_eq!(fixture.app("app").await.tasks.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_beyond_the_limit_adds_no_task() {
    let fixture = Fixture::with(|settings| {
        quick(settings);
        settings.max_user_application_tasks = 3;
    })
    .await;
    let ann = fixture.user("ann");
    put(&ann, "app", &json!({})).await;
    put_task(&ann, "app", "a", &task()).await;
    let four = ["a", "b", "c", "d"].map(|id| (id, task()));
    assert_eq!(problem(post(&ann, "app/tasks", &four).await).0, 429);
    assert_eq!(fixture.app("app").await.tasks.len(), 1);
    assert!(post(&ann, "app/tasks", &four[..3]).await.is_ok());
    let bob = fixture.user("bob");
    assert_eq!(problem(post(&bob, "app/tasks", &four[..1]).await).0, 404);
    assert_eq!(problem(post(&ann, "app/tasks", &[]).await).0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_bulk_are_requested_with_the_size_of_their_group() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put(&ann, "app", &json!({})).await;
    let two = [("x", task()), ("y", task_of_group("nobody"))];
    post(&ann, "app/tasks", &two).await.unwrap();
    let gib = 1 << 30;
    for id in ["x", "y"] {
        let demand = fixture.requested("app", id).await;
        assert_eq!(demand.size.memory_bytes, gib, "{demand:?}");
    }
}
