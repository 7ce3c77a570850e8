//! Changes that are tried first, and made only if nothing has changed since (A10).

use hayward_job_converter_api::submission::{ServiceChanged, ServiceSubmission, Submitted};
use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::problem::Code;
use http::{HeaderName, Method};
use serde_json::json;

use crate::world::{World, count, fresh_key, refusal, submit};

const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_cancellation_is_tried_and_then_made_at_that_revision() {
    let world = World::new().await;
    let job = world.submit(count(2)).await;
    let (ann, path) = (world.user("ann"), format!("/v1/jobs/{}", job.id));
    let tried = ann.call(Method::DELETE, &path).query("dry_run", true);
    let tried = tried.answer::<WorkView>().await.unwrap();
    assert_eq!(
        (tried.status.as_u16(), tried.body.state),
        (200, WorkState::Cancelled)
    );
    assert_eq!(
        world.view(&job.id).await.state,
        WorkState::Waiting,
        "nothing came of it"
    );
    assert!(world.demand().await.contains_key(job.id.as_str()));
    let bobs = world
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
    let other = world.submit(count(1)).await;
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
    let now = late.beside("revision").unwrap().to_string();
    let made = ann.call(Method::DELETE, &path).header(IF_REVISION, &now);
    made.send::<WorkView>().await.unwrap();
    world.in_state(&job.id, WorkState::Cancelled).await;
    let odd = ann.call(Method::DELETE, &path).header(IF_REVISION, "soon");
    let odd = refusal(odd.send::<WorkView>().await);
    assert_eq!(odd, (400, vec!["/header/if-revision".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_submission_that_is_repeated_is_answered_again_although_the_revision_moved() {
    let world = World::new().await;
    let at = world.submit(count(1)).await.revision.to_string();
    let (ann, key) = (world.user("ann"), fresh_key());
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

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_service_is_changed_on_trial_without_being_changed() {
    let world = World::new().await;
    let ann = world.user("ann");
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

#[tokio::test(flavor = "multi_thread")]
async fn a10_what_has_no_dry_run_is_refused_instead_of_done() {
    let world = World::new().await;
    let operator = world.client("op", &[hayward_service::auth::Scope::Operator]);
    let order = json!({ "name": "tides", "users": ["ann"] });
    let tried = operator
        .call(Method::POST, "/v1/orchestrators")
        .query("dry_run", true);
    let tried = tried.idempotency_key(&fresh_key()).body(&order);
    let tried = refusal(tried.send::<serde_json::Value>().await);
    assert_eq!(tried, (422, vec!["/query/dry_run".to_owned()]));
    let all: serde_json::Value = operator.get("/v1/orchestrators").await.unwrap();
    assert_eq!(all["orchestrators"], json!([]));
}
