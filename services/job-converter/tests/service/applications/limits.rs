//! Limits of applications: sizes, timers, and the number of open tasks.

use hayward_job_converter_api::applications::{ApplicationView, TaskAccepted};
use http::Method;
use serde_json::json;

use super::{
    expect_problem, fixture, put_application, put_task, set_short_tick, task_body, transition,
};
use crate::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn excessive_sizes_and_timers_are_refused() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    let max = u64::MAX.to_string();
    let group = json!({ "name": "g", "minMember": 1, "minResource": { "memory": max } });
    let policy = format!("gangAdmissionTimeoutInSeconds={max}");
    for (body, pointer) in [
        (
            json!({ "taskGroups": [group] }),
            "/taskGroups/0/minResource/memory",
        ),
        (
            json!({ "schedulingPolicyParameters": policy }),
            "/schedulingPolicyParameters",
        ),
    ] {
        let call = ann.call(Method::PUT, "/v1/applications/app").body(&body);
        let (status, problem) = expect_problem(call.send_for_response::<ApplicationView>().await);
        assert_eq!(status, 422);
        assert_eq!(problem["errors"][0]["pointer"], json!(pointer));
    }
    put_application(&ann, "app", &json!({})).await;
    let mut large = task_body();
    large["resources"]["memory"] = json!(max);
    let call = ann.call(Method::PUT, "/v1/applications/app/tasks/t");
    let (status, problem) =
        expect_problem(call.body(&large).send_for_response::<TaskAccepted>().await);
    assert_eq!(status, 422);
    assert_eq!(problem["errors"][0]["pointer"], json!("/resources/memory"));
}

/// The limit counts open tasks and gang members of all users (I25).
#[tokio::test(flavor = "multi_thread")]
async fn the_total_of_tasks_is_bounded_and_freed_again() {
    let fixture = Fixture::with_settings(|settings| {
        set_short_tick(settings);
        settings.max_open_work = 3;
    })
    .await;
    let ann = fixture.user("ann");
    put_application(&ann, "one", &json!({})).await;
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "cpu": "1" } });
    let gang = json!({ "taskGroups": [group] });
    put_task(&ann, "one", "a", &task_body()).await;
    put_task(&ann, "one", "b", &task_body()).await;
    let call = ann.call(Method::PUT, "/v1/applications/gang").body(&gang);
    assert_eq!(
        expect_problem(call.send_for_response::<ApplicationView>().await).0,
        429
    );
    put_task(&ann, "one", "c", &task_body()).await;
    let call = ann.call(Method::PUT, "/v1/applications/one/tasks/d");
    let (status, _) = expect_problem(
        call.body(&task_body())
            .send_for_response::<TaskAccepted>()
            .await,
    );
    assert_eq!(status, 429);
    assert_eq!(put_task(&ann, "one", "c", &task_body()).await.0, 200);
    for name in ["a", "b"] {
        assert!(
            transition(&ann, &format!("one/tasks/{name}"), "complete")
                .await
                .applied
        );
    }
    assert_eq!(put_application(&ann, "gang", &gang).await.0, 201);
}

/// One user cannot use up the total limit.
#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_of_one_user_are_bounded() {
    let mut fixture = Fixture::with_settings(|settings| {
        set_short_tick(settings);
        settings.server.lease_ms = 3_000;
        settings.max_open_work = 5;
        settings.max_user_application_tasks = 2;
    })
    .await;
    let (ann, bob) = (fixture.user("ann"), fixture.user("bob"));
    put_application(&ann, "one", &json!({})).await;
    put_application(&ann, "two", &json!({})).await;
    put_application(&bob, "bobs", &json!({})).await;
    put_task(&ann, "one", "a", &task_body()).await;
    put_task(&ann, "two", "b", &task_body()).await;
    for restarts in [false, true] {
        if restarts {
            fixture.kill_and_restart().await;
        }
        let ann = fixture.user("ann");
        let call = ann.call(Method::PUT, "/v1/applications/one/tasks/c");
        let (status, problem) = expect_problem(
            call.body(&task_body())
                .send_for_response::<TaskAccepted>()
                .await,
        );
        assert_eq!(status, 429);
        let detail = problem["detail"].as_str().unwrap();
        let limit = "one user may have 2 (`max_user_application_tasks`)";
        assert!(
            detail.contains("user ann has 2") && detail.contains(limit),
            "{detail}"
        );
    }
    let (ann, bob) = (fixture.user("ann"), fixture.user("bob"));
    assert_eq!(
        put_task(&ann, "one", "a", &task_body()).await.0,
        200,
        "a task that exists is not counted again"
    );
    let group = json!({ "name": "g", "minMember": 1, "minResource": { "cpu": "1" } });
    let gang = json!({ "taskGroups": [group] });
    let call = ann.call(Method::PUT, "/v1/applications/gang").body(&gang);
    assert_eq!(
        expect_problem(call.send_for_response::<ApplicationView>().await).0,
        429
    );
    assert_eq!(put_task(&bob, "bobs", "a", &task_body()).await.0, 201);
    assert_eq!(put_task(&bob, "bobs", "b", &task_body()).await.0, 201);
    // Ended and removed tasks do not count.
    assert!(transition(&ann, "one/tasks/a", "complete").await.applied);
    assert_eq!(put_application(&ann, "gang", &gang).await.0, 201);
    let removed = ann.call(Method::DELETE, "/v1/applications/two?force=true");
    removed.send_for_response::<()>().await.unwrap();
    assert_eq!(put_task(&ann, "one", "c", &task_body()).await.0, 201);
}
