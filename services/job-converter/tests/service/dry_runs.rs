//! Tests of dry runs, and of changes bound to the revision of their dry run (A10).

use hayward_job_converter_api::applications::{ApplicationView, TaskAccepted, TransitionResult};
use hayward_job_converter_api::orchestrators::{MapAnswer, OrchestratorView};
use hayward_job_converter_api::submission::{ServiceChanged, ServiceSubmission, Submitted};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::auth::Scope;
use hayward_service::client::Call;
use hayward_service::http::problem::Code;
use http::{HeaderName, Method};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fixture::{Fixture, fresh_key, job_with_tasks, refusal, submit};

const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

/// `If-Revision` applies a change only if nothing changed since its dry run (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_after_its_dry_run_has_the_expected_result() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(job_with_tasks(2)).await;
    let (ann, path) = (fixture.user("ann"), format!("/v1/jobs/{}", job.id));
    let dry_run = ann.call(Method::DELETE, &path).query("dry_run", true);
    let dry_run = dry_run.send_for_response::<WorkView>().await.unwrap();
    assert_eq!(
        (dry_run.status.as_u16(), dry_run.body.state),
        (200, WorkState::Cancelled)
    );
    assert_eq!(
        fixture.view(&job.id).await.state,
        WorkState::Waiting,
        "a dry run changes nothing"
    );
    assert!(fixture.demand().await.contains_key(job.id.as_str()));
    let refused = fixture
        .user("bob")
        .call(Method::DELETE, &path)
        .query("dry_run", true);
    assert_eq!(
        refusal(refused.send::<WorkView>().await).0,
        404,
        "a dry run is checked"
    );

    let revision = dry_run.headers["hayward-revision"]
        .to_str()
        .unwrap()
        .to_owned();
    let other = fixture.submit(job_with_tasks(1)).await;
    assert!(other.revision > revision.parse().unwrap());
    let late = ann
        .call(Method::DELETE, &path)
        .header(IF_REVISION, &revision);
    let late = late.send::<WorkView>().await.unwrap_err();
    let late = late.problem().unwrap();
    assert_eq!(
        (late.status().as_u16(), late.code),
        (412, Code::RevisionMoved)
    );
    let now = late.extension("revision").unwrap().to_string();
    let cancelled = ann.call(Method::DELETE, &path).header(IF_REVISION, &now);
    cancelled.send::<WorkView>().await.unwrap();
    fixture.wait_for_state(&job.id, WorkState::Cancelled).await;
    let invalid = ann.call(Method::DELETE, &path).header(IF_REVISION, "soon");
    let invalid = refusal(invalid.send::<WorkView>().await);
    assert_eq!(invalid, (400, vec!["/header/if-revision".to_owned()]));
}

/// A repetition is answered from the stored response, so its `If-Revision` does not matter (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_submission_gets_its_answer_at_any_revision() {
    let fixture = Fixture::new().await;
    let revision = fixture.submit(job_with_tasks(1)).await.revision.to_string();
    let (ann, key) = (fixture.user("ann"), fresh_key());
    let body = job_with_tasks(2);
    let call = || {
        let call = ann.call(Method::POST, "/v1/jobs").body(&body);
        call.idempotency_key(&key).header(IF_REVISION, &revision)
    };
    let first = call().send::<Submitted>().await.unwrap();
    assert_eq!(call().send::<Submitted>().await.unwrap(), first);
    let other = ann.call(Method::POST, "/v1/jobs").body(&body);
    let other = other
        .idempotency_key(&fresh_key())
        .header(IF_REVISION, &revision);
    assert_eq!(refusal(other.send::<Submitted>().await).0, 412);
}

/// The dry run shows whether a change makes a new deployment (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_service_change_changes_nothing() {
    let fixture = Fixture::new().await;
    let ann = fixture.user("ann");
    let body = json!({ "command": ["sleep", "9"], "instances": 1 });
    let service = submit(&ann, "/v1/services", &body, &fresh_key())
        .await
        .unwrap();
    let path = format!("/v1/services/{}", service.id);
    let show = format!("{path}/submission");
    let before = ann
        .call(Method::GET, &show)
        .send_for_response::<ServiceSubmission>()
        .await
        .unwrap();
    let etag = before.headers["etag"].to_str().unwrap().to_owned();
    let other = json!({ "command": ["sleep", "10"], "instances": 1 });
    let dry_run = ann
        .call(Method::PUT, &path)
        .query("dry_run", true)
        .body(&other);
    let dry_run = dry_run.header(http::header::IF_MATCH, &etag);
    let dry_run: ServiceChanged = dry_run.send().await.unwrap();
    assert!(dry_run.changed && dry_run.redeployed);
    let after: ServiceSubmission = ann.get(&show).await.unwrap();
    assert_eq!(after, before.body);
}

/// Sends the call as a dry run with a new key. Returns the status and the body.
async fn send_dry_run<T: DeserializeOwned>(call: Call) -> (u16, T) {
    let call = call.query("dry_run", true).idempotency_key(&fresh_key());
    let answer = call.send_for_response::<T>().await.unwrap();
    assert!(answer.headers.contains_key("hayward-revision"));
    (answer.status.as_u16(), answer.body)
}

/// Every route that changes applications supports dry runs (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_an_application_runs_on_a_copy() {
    let fixture = Fixture::new().await;
    let (ann, app) = (fixture.user("ann"), "/v1/applications/a1");
    let call = |method: Method, path: &str, body: Value| ann.call(method, path).body(&body);
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "memory": "1Gi" } });
    let body = json!({ "taskGroups": [group] });
    let (status, view) =
        send_dry_run::<ApplicationView>(call(Method::PUT, app, body.clone())).await;
    assert_eq!((status, view.state.as_str()), (200, "New"));
    let application_status = || async { refusal(ann.get::<Value>(app).await).0 };
    assert_eq!(application_status().await, 404, "a dry run changes nothing");

    let created = call(Method::PUT, app, body).send_for_response::<ApplicationView>();
    let created = created.await.unwrap();
    assert_eq!(
        (created.status.as_u16(), &created.headers["location"]),
        (201, &app.parse().unwrap())
    );
    let task = format!("{app}/tasks/t1");
    let task_body = json!({ "command": ["true"], "resources": { "memory": "1Gi" } });
    let (status, added) =
        send_dry_run::<TaskAccepted>(call(Method::PUT, &task, task_body.clone())).await;
    assert_eq!((status, added.task.id.as_str()), (200, "t1"));
    assert_eq!(refusal(ann.get::<Value>(&task).await).0, 404);
    let bad = call(Method::PUT, &task, json!({ "command": [] })).query("dry_run", true);
    assert_eq!(refusal(bad.send::<Value>().await).0, 422, "it is checked");
    call(Method::PUT, &task, task_body)
        .send::<Value>()
        .await
        .unwrap();

    let end = json!({ "event": "complete" });
    let path = format!("{task}/transitions");
    let (status, expected) = send_dry_run::<TransitionResult>(call(Method::POST, &path, end)).await;
    assert_eq!(status, 200, "{expected:?}");
    let kill = json!({ "event": "kill" });
    let path = format!("{app}/transitions");
    assert_eq!(
        send_dry_run::<TransitionResult>(call(Method::POST, &path, kill))
            .await
            .0,
        200
    );
    let confirmed = json!({ "applicationId": "a1", "terminationType": "TIMEOUT" });
    let confirm = call(Method::POST, "/v1/allocations/t1/confirmations", confirmed);
    assert_eq!(send_dry_run::<TransitionResult>(confirm).await.0, 200);
    let (status, ()) = send_dry_run(ann.call(Method::DELETE, &task)).await;
    assert_eq!(status, 204);
    let blocked = ann.call(Method::DELETE, app).query("dry_run", true);
    assert_eq!(
        refusal(blocked.send::<()>().await).0,
        409,
        "a task is alive"
    );
    let (status, ()) = send_dry_run(ann.call(Method::DELETE, format!("{app}?force=true"))).await;
    assert_eq!(status, 204);

    let after: ApplicationView = ann.get(app).await.unwrap();
    let ids: Vec<_> = after.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["t1"]);
    assert!(
        !matches!(after.state.as_str(), "Killing" | "Killed"),
        "{}",
        after.state
    );
    assert_ne!(after.tasks[0].state, "Completed");
    ann.call(Method::DELETE, format!("{app}?force=true"))
        .send::<()>()
        .await
        .unwrap();
    assert_eq!(application_status().await, 404);
}

/// Every route that changes orchestrators supports dry runs (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_an_orchestrator_runs_on_a_copy() {
    let fixture = Fixture::new().await;
    let operator = fixture.client("op", &[Scope::Operator]);
    let collection = "/v1/orchestrators";
    let body = json!({ "name": "tides", "users": ["ann"] });
    let create = || operator.call(Method::POST, collection).body(&body);
    let (status, view) = send_dry_run::<OrchestratorView>(create()).await;
    assert_eq!((status, view.name.as_str()), (200, "tides"));
    let list: Value = operator.get(collection).await.unwrap();
    assert_eq!(
        list["orchestrators"],
        json!([]),
        "a dry run changes nothing"
    );

    let created = create()
        .idempotency_key(&fresh_key())
        .send_for_response::<Value>();
    let created = created.await.unwrap();
    assert_eq!(created.status.as_u16(), 201);
    let path = "/v1/orchestrators/tides";
    let shown = operator
        .call(Method::GET, path)
        .send_for_response::<OrchestratorView>();
    let shown = shown.await.unwrap();
    assert_eq!(shown.headers["etag"], created.headers["etag"]);
    let tides = fixture.client("tides", &[Scope::Orchestrator("tides".parse().unwrap())]);
    let entry = json!({ "kind": "job", "state": "waiting", "owner": "ann" });
    let map = json!({ "lineage": "l", "sequence": 1, "work": { "w1": entry } });
    let put = tides
        .call(Method::PUT, format!("{path}/publication"))
        .body(&map);
    let (status, answer) = send_dry_run::<MapAnswer>(put).await;
    assert!(status == 200 && answer.applied, "{answer:?}");
    let (status, ()) = send_dry_run(operator.call(Method::DELETE, path)).await;
    assert_eq!(status, 204);
    let after: OrchestratorView = operator.get(path).await.unwrap();
    assert_eq!(after.lineage, None, "no map was applied");
    let refused = operator.call(Method::DELETE, format!("{collection}/ebbs"));
    let refused = refused.query("dry_run", true).send::<()>().await;
    assert_eq!(refusal(refused).0, 404, "a dry run is checked");
}
