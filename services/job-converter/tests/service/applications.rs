//! Tests of applications over HTTP, with a fake scheduler: submission, removal, pools and
//! transitions. The applications belong to the user ann, and the service ticks often.

#[path = "applications/bulk_tasks.rs"]
mod bulk_tasks;
#[path = "applications/completion_and_failure.rs"]
mod completion_and_failure;
#[path = "applications/gangs.rs"]
mod gangs;
#[path = "applications/limits.rs"]
mod limits;
#[path = "applications/placement_constraints.rs"]
mod placement_constraints;
#[path = "applications/task_lifecycle.rs"]
mod task_lifecycle;
#[path = "applications/visibility.rs"]
mod visibility;

use hayward_job_converter_api::DemandEntry;
use hayward_job_converter_api::applications::{ApplicationView, TaskAccepted, TransitionResult};
use hayward_rm_scheduler_api::WaitReason;
use hayward_service::client::{Client, ClientError};
use hayward_testkit::until;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::Fixture;

/// Creates a fixture with frequent ticks.
pub async fn fixture() -> Fixture {
    Fixture::with_settings(set_short_tick).await
}

pub async fn fixture_with_short_lease() -> Fixture {
    Fixture::with_settings(|settings| {
        set_short_tick(settings);
        settings.server.lease_ms = 3_000;
    })
    .await
}

fn set_short_tick(settings: &mut hayward_job_converter::Settings) {
    settings.application_tick_ms = 20;
}

pub async fn put_application(client: &Client, id: &str, body: &Value) -> (u16, ApplicationView) {
    let call = client.call(Method::PUT, format!("/v1/applications/{id}"));
    let answer = call.body(body).send_for_response().await.unwrap();
    (answer.status.as_u16(), answer.body)
}

pub async fn put_task(client: &Client, id: &str, task: &str, body: &Value) -> (u16, TaskAccepted) {
    let path = format!("/v1/applications/{id}/tasks/{task}");
    let call = client.call(Method::PUT, path);
    let answer = call.body(body).send_for_response().await.unwrap();
    (answer.status.as_u16(), answer.body)
}

pub fn task_body() -> Value {
    json!({ "command": ["/bin/work"], "resources": { "memory": "1Gi" } })
}

pub fn task_body_of_group(group: &str) -> Value {
    json!({ "command": ["/bin/work"], "taskGroupName": group })
}

impl Fixture {
    /// Reads an application of ann.
    pub async fn application(&self, id: &str) -> ApplicationView {
        let ann = self.user("ann");
        ann.get(&format!("/v1/applications/{id}")).await.unwrap()
    }

    /// Waits until an application satisfies the condition.
    pub async fn wait_for_application(
        &self,
        id: &str,
        label: &str,
        condition: impl Fn(&ApplicationView) -> bool,
    ) -> ApplicationView {
        until(&format!("{id}: {label}"), async || {
            Some(self.application(id).await).filter(|view| condition(view))
        })
        .await
    }

    pub async fn wait_for_states(&self, id: &str, state: &str, core: &str) -> ApplicationView {
        self.wait_for_application(id, &format!("{state} and {core}"), |view| {
            view.state == state && view.scheduling_state.as_deref() == Some(core)
        })
        .await
    }

    /// Returns the demand of a task once it is published.
    pub async fn task_demand(&self, id: &str, task: &str) -> DemandEntry {
        until(&format!("demand of {task}"), async || {
            let view = self.application(id).await;
            let work = view.tasks.iter().find(|it| it.id == task)?.work.clone();
            self.demand().await.remove(work.as_str())
        })
        .await
    }

    /// Publishes a verdict for an application that asks for admission to its queue.
    pub async fn publish_queue_verdict(&self, reason: WaitReason, refused: bool) -> DemandEntry {
        let request = until("a request for admission", async || {
            let demand = self.demand().await.into_values();
            let asks_for_admission = |it: &DemandEntry| {
                let part = it.work.as_str().rsplit_once('.');
                // The work id of such a request ends with `.q`.
                part.is_some_and(|(_, part)| part == "q")
            };
            let mut request = demand.filter(asks_for_admission);
            request.next()
        });
        let request = request.await;
        self.scheduler
            .publish_verdict(&request.work, reason, refused);
        request
    }

    pub async fn wait_for_task(&self, id: &str, task: &str, state: &str) {
        self.wait_for_application(id, &format!("{task} {state}"), |view| {
            let found = view.tasks.iter().find(|it| it.id == task);
            found.is_some_and(|it| it.state == state)
        })
        .await;
    }
}

pub async fn transition(client: &Client, path: &str, event: &str) -> TransitionResult {
    let path = format!("/v1/applications/{path}/transitions");
    let call = client.call(Method::POST, path);
    let answer = call
        .body(&json!({ "event": event }))
        .send_for_response::<TransitionResult>()
        .await;
    let answer = answer.unwrap();
    assert_eq!(answer.status.as_u16(), 202);
    answer.body
}

pub fn expect_problem<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (u16, Value) {
    let error = answer.unwrap_err();
    let problem = error.problem().unwrap().clone();
    let status = problem.status().as_u16();
    (status, serde_json::to_value(problem).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_submission_lists_its_ignored_fields() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    let (status, view) = put_application(&ann, "app00001", &json!({ "queueName": "root.a" })).await;
    assert_eq!((status, view.state.as_str()), (201, "New"));
    assert!(view.tasks.is_empty());
    let (status, view) =
        put_application(&ann, "app00001", &json!({ "queueName": "root.other" })).await;
    assert_eq!((status, view.queue_name.as_str()), (200, "root.a"));
    assert_eq!(view.ignored_fields, ["queueName"]);
}

/// A waiting task prevents a removal, but an ended one does not.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_with_live_tasks_is_removed_only_by_force() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    for id in ["one", "two", "three"] {
        put_application(&ann, id, &json!({})).await;
    }
    let mut task_with_alias = task_body();
    task_with_alias["alias"] = json!("/remove-test-00001");
    put_task(&ann, "one", "t", &task_with_alias).await;
    put_task(&ann, "two", "t", &task_body()).await;
    transition(&ann, "two/tasks/t", "complete").await;
    let remove = |id: &str| {
        let path = format!("/v1/applications/{id}");
        let ann = ann.clone();
        async move {
            ann.call(Method::DELETE, path)
                .send_for_response::<()>()
                .await
        }
    };
    let (status, problem) = expect_problem(remove("one").await);
    assert_eq!(status, 409);
    assert_eq!(problem["blockingTasks"], json!(["/remove-test-00001"]));
    fixture.task_demand("one", "t").await;
    assert_eq!(remove("two").await.unwrap().status.as_u16(), 204);
    assert_eq!(expect_problem(remove("two").await).0, 404);
    assert_eq!(fixture.application("three").await.id, "three");
    assert_eq!(remove("one?force=true").await.unwrap().status.as_u16(), 204);
    until("its demand to be withdrawn", async || {
        fixture.demand().await.is_empty().then_some(())
    })
    .await;
}

/// An application names the pool like a job, and the pool survives a restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_may_name_the_pool_of_its_queue() {
    let mut fixture = fixture_with_short_lease().await;
    let ann = fixture.user("ann");
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "cpu": "1" } });
    let gang = json!({ "pool": "batch", "queueName": "root.a", "taskGroups": [group] });
    let (status, view) = put_application(&ann, "gang", &gang).await;
    assert_eq!((status, view.pool.as_deref()), (201, Some("batch")));
    put_application(&ann, "alone", &json!({ "pool": "batch" })).await;
    put_task(&ann, "alone", "t", &task_body()).await;
    fixture
        .publish_queue_verdict(WaitReason::Satisfied, false)
        .await;
    put_application(&ann, "plain", &json!({})).await;
    put_task(&ann, "plain", "t", &task_body()).await;
    let other = json!({ "pool": "gpu", "queueName": "root.a", "taskGroups": gang["taskGroups"] });
    let (status, view) = put_application(&ann, "gang", &other).await;
    assert_eq!((status, view.pool.as_deref()), (200, Some("batch")));
    assert_eq!(view.ignored_fields, ["pool"]);
    for restarts in [false, true] {
        if restarts {
            fixture.kill_and_restart().await;
        }
        let work = fixture.application("gang").await.task_groups[0]
            .work
            .clone();
        let demand = until("demand of the gang", async || {
            fixture.demand().await.remove(work.as_str())
        });
        let queued = demand.await.queued.unwrap();
        let queue_names = (queued.pool.as_deref(), queued.queue.as_deref());
        assert_eq!(queue_names, (Some("batch"), Some("root.a")));
        let queued = fixture.task_demand("alone", "t").await.queued.unwrap();
        assert_eq!(
            (queued.pool.as_deref(), queued.queue),
            (Some("batch"), None)
        );
        assert!(fixture.task_demand("plain", "t").await.queued.is_none());
        assert_eq!(fixture.application("plain").await.pool, None);
    }
    let ann = fixture.user("ann");
    for bad in ["", "  ", "a\0b", &"x".repeat(600)] {
        let call = ann.call(Method::PUT, "/v1/applications/bad");
        let refused = call
            .body(&json!({ "pool": bad }))
            .send_for_response::<ApplicationView>();
        let (status, problem) = expect_problem(refused.await);
        assert_eq!(status, 422, "{bad:?}");
        assert_eq!(problem["errors"][0]["pointer"], json!("/pool"));
    }
}

/// Refused transitions are answered and not dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_transition_has_its_reason() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    let is_running = |view: &ApplicationView| view.state == "Running";
    put_application(&ann, "app", &json!({})).await;
    fixture
        .wait_for_application("app", "it runs", is_running)
        .await;
    assert!(transition(&ann, "app", "complete").await.applied);
    let again = transition(&ann, "app", "complete").await;
    assert_eq!(
        (again.applied, again.reason.as_deref()),
        (false, Some("not_legal_here"))
    );
    assert_eq!(again.state.as_deref(), Some("Completed"));
    let path = "/v1/applications/app/tasks/late";
    let late = ann.call(Method::PUT, path).body(&task_body());
    let (status, problem) = expect_problem(late.send_for_response::<TaskAccepted>().await);
    assert_eq!(
        (status, problem["state"].as_str()),
        (409, Some("Completed"))
    );

    put_application(&ann, "bad", &json!({})).await;
    fixture
        .wait_for_application("bad", "it runs", is_running)
        .await;
    assert!(transition(&ann, "bad", "fail").await.applied);
    assert!(transition(&ann, "bad", "fail").await.applied);
    let late = ann.call(Method::PUT, "/v1/applications/bad/tasks/late");
    let (status, problem) = expect_problem(
        late.body(&task_body())
            .send_for_response::<TaskAccepted>()
            .await,
    );
    assert_eq!(
        (status, problem["failureCode"].as_str()),
        (409, Some("reported"))
    );
}

/// A confirmation or transition that names nothing known is answered with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_transition_of_something_unknown_has_its_reason() {
    let fixture = fixture().await;
    let ann = fixture.user("ann");
    put_application(&ann, "app", &json!({})).await;
    let body = json!({ "applicationId": "app", "terminationType": "TIMEOUT" });
    let result: TransitionResult = ann
        .post("/v1/allocations/none/confirmations", &body, None)
        .await
        .unwrap();
    assert_eq!(
        (result.applied, result.reason.as_deref()),
        (false, Some("unknown_task"))
    );
    let body = json!({ "applicationId": "never", "terminationType": "TIMEOUT" });
    let never = ann
        .post::<_, TransitionResult>("/v1/allocations/none/confirmations", &body, None)
        .await;
    assert_eq!(expect_problem(never).0, 404);
    let missing = ann.call(Method::POST, "/v1/applications/never/transitions");
    let missing = missing
        .body(&json!({ "event": "complete" }))
        .send_for_response::<TransitionResult>()
        .await;
    assert_eq!(expect_problem(missing).0, 404);
}

/// Other implementations of the protocol bypass all rules for this tag. Hayward ignores the tag.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_requests_a_recovery_queue_gets_a_warning() {
    let fixture = fixture().await;
    let tags = json!({ "tags": { "application.create.force": "true" } });
    let (status, view) = put_application(&fixture.user("ann"), "app", &tags).await;
    assert_eq!(status, 201);
    assert!(
        view.warnings[0]
            .message
            .contains("application.create.force")
    );
}
