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

use crate::fixture::{Fixture, count, fresh_key, refusal, submit};

const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

/// API rule (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_after_its_dry_run_has_the_expected_result() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(count(2)).await;
    let (ann, path) = (fixture.user("ann"), format!("/v1/jobs/{}", job.id));
    let tried = ann.call(Method::DELETE, &path).query("dry_run", true);
    let tried = tried.answer::<WorkView>().await.unwrap();
    assert_eq!(
        (tried.status.as_u16(), tried.body.state),
        (200, WorkState::Cancelled)
    );
    assert_eq!(
        fixture.view(&job.id).await.state,
        WorkState::Waiting,
        "nothing came of it"
    );
    assert!(fixture.demand().await.contains_key(job.id.as_str()));
    let bobs = fixture
        .user("bob")
        .call(Method::DELETE, &path)
        .query("dry_run", true);
    assert_eq!(
        refusal(bobs.send::<WorkView>().await).0,
        404,
        "the same checks"
    );

    let revision = tried.headers["hayward-revision"]
        .to_str()
        .unwrap()
        .to_owned();
    let other = fixture.submit(count(1)).await;
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
    let made = ann.call(Method::DELETE, &path).header(IF_REVISION, &now);
    made.send::<WorkView>().await.unwrap();
    fixture.in_state(&job.id, WorkState::Cancelled).await;
    let odd = ann.call(Method::DELETE, &path).header(IF_REVISION, "soon");
    let odd = refusal(odd.send::<WorkView>().await);
    assert_eq!(odd, (400, vec!["/header/if-revision".to_owned()]));
}

/// API rule (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_submission_gets_its_answer_at_any_revision() {
    let fixture = Fixture::new().await;
    let at = fixture.submit(count(1)).await.revision.to_string();
    let (ann, key) = (fixture.user("ann"), fresh_key());
    let body = count(2);
    let call = || {
        let call = ann.call(Method::POST, "/v1/jobs").body(&body);
        call.idempotency_key(&key).header(IF_REVISION, &at)
    };
    let first = call().send::<Submitted>().await.unwrap();
    assert_eq!(call().send::<Submitted>().await.unwrap(), first);
    let fresh = ann.call(Method::POST, "/v1/jobs").body(&body);
    let fresh = fresh.idempotency_key(&fresh_key()).header(IF_REVISION, &at);
    assert_eq!(refusal(fresh.send::<Submitted>().await).0, 412);
}

/// API rule (A10).
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
        .answer::<ServiceSubmission>()
        .await
        .unwrap();
    let etag = before.headers["etag"].to_str().unwrap().to_owned();
    let other = json!({ "command": ["sleep", "10"], "instances": 1 });
    let tried = ann
        .call(Method::PUT, &path)
        .query("dry_run", true)
        .body(&other);
    let tried = tried.header(http::header::IF_MATCH, &etag);
    let tried: ServiceChanged = tried.send().await.unwrap();
    assert!(tried.changed && tried.redeployed);
    let after: ServiceSubmission = ann.get(&show).await.unwrap();
    assert_eq!(after, before.body);
}

/// Sends the call as a dry run with a new key. Returns the status and the body.
async fn tried<T: DeserializeOwned>(call: Call) -> (u16, T) {
    let call = call.query("dry_run", true).idempotency_key(&fresh_key());
    let answer = call.answer::<T>().await.unwrap();
    assert!(answer.headers.contains_key("hayward-revision"));
    (answer.status.as_u16(), answer.body)
}

/// API rule (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_an_application_runs_on_a_copy() {
    let fixture = Fixture::new().await;
    let (ann, app) = (fixture.user("ann"), "/v1/applications/a1");
    let call = |method: Method, path: &str, body: Value| ann.call(method, path).body(&body);
    let group = json!({ "name": "g", "minMember": 2, "minResource": { "memory": "1Gi" } });
    let order = json!({ "taskGroups": [group] });
    let (status, view) = tried::<ApplicationView>(call(Method::PUT, app, order.clone())).await;
    assert_eq!((status, view.state.as_str()), (200, "New"));
    let gone = || async { refusal(ann.get::<Value>(app).await).0 };
    assert_eq!(gone().await, 404, "nothing came of it");

    let made = call(Method::PUT, app, order).answer::<ApplicationView>();
    let made = made.await.unwrap();
    assert_eq!(
        (made.status.as_u16(), &made.headers["location"]),
        (201, &app.parse().unwrap())
    );
    let task = format!("{app}/tasks/t1");
    let what = json!({ "command": ["true"], "resources": { "memory": "1Gi" } });
    let (status, added) = tried::<TaskAccepted>(call(Method::PUT, &task, what.clone())).await;
    assert_eq!((status, added.task.id.as_str()), (200, "t1"));
    assert_eq!(refusal(ann.get::<Value>(&task).await).0, 404);
    let bad = call(Method::PUT, &task, json!({ "command": [] })).query("dry_run", true);
    assert_eq!(refusal(bad.send::<Value>().await).0, 422, "the same checks");
    call(Method::PUT, &task, what)
        .send::<Value>()
        .await
        .unwrap();

    let end = json!({ "event": "complete" });
    let reported = format!("{task}/transitions");
    let (status, expected) = tried::<TransitionResult>(call(Method::POST, &reported, end)).await;
    assert_eq!(status, 200, "{expected:?}");
    let kill = json!({ "event": "kill" });
    let reported = format!("{app}/transitions");
    assert_eq!(
        tried::<TransitionResult>(call(Method::POST, &reported, kill))
            .await
            .0,
        200
    );
    let confirmed = json!({ "applicationId": "a1", "terminationType": "TIMEOUT" });
    let confirm = call(Method::POST, "/v1/allocations/t1/confirmations", confirmed);
    assert_eq!(tried::<TransitionResult>(confirm).await.0, 200);
    let (status, ()) = tried(ann.call(Method::DELETE, &task)).await;
    assert_eq!(status, 204);
    let blocked = ann.call(Method::DELETE, app).query("dry_run", true);
    assert_eq!(
        refusal(blocked.send::<()>().await).0,
        409,
        "a task is alive"
    );
    let (status, ()) = tried(ann.call(Method::DELETE, format!("{app}?force=true"))).await;
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
    assert_eq!(gone().await, 404);
}

/// API rule (A10).
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_an_orchestrator_runs_on_a_copy() {
    let fixture = Fixture::new().await;
    let operator = fixture.client("op", &[Scope::Operator]);
    let all = "/v1/orchestrators";
    let order = json!({ "name": "tides", "users": ["ann"] });
    let make = || operator.call(Method::POST, all).body(&order);
    let (status, view) = tried::<OrchestratorView>(make()).await;
    assert_eq!((status, view.name.as_str()), (200, "tides"));
    let list: Value = operator.get(all).await.unwrap();
    assert_eq!(list["orchestrators"], json!([]), "nothing came of it");

    let made = make().idempotency_key(&fresh_key()).answer::<Value>();
    let made = made.await.unwrap();
    assert_eq!(made.status.as_u16(), 201);
    let one = "/v1/orchestrators/tides";
    let shown = operator.call(Method::GET, one).answer::<OrchestratorView>();
    let shown = shown.await.unwrap();
    assert_eq!(shown.headers["etag"], made.headers["etag"]);
    let tides = fixture.client("tides", &[Scope::Orchestrator("tides".parse().unwrap())]);
    let entry = json!({ "kind": "job", "state": "waiting", "owner": "ann" });
    let map = json!({ "lineage": "l", "sequence": 1, "work": { "w1": entry } });
    let put = tides
        .call(Method::PUT, format!("{one}/publication"))
        .body(&map);
    let (status, answer) = tried::<MapAnswer>(put).await;
    assert!(status == 200 && answer.applied, "{answer:?}");
    let (status, ()) = tried(operator.call(Method::DELETE, one)).await;
    assert_eq!(status, 204);
    let after: OrchestratorView = operator.get(one).await.unwrap();
    assert_eq!(after.lineage, None, "no map was taken");
    let others = operator.call(Method::DELETE, format!("{all}/ebbs"));
    let others = others.query("dry_run", true).send::<()>().await;
    assert_eq!(refusal(others).0, 404, "the same checks");
}
