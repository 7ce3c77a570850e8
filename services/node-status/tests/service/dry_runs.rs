//! Dry runs: a request with `dry_run` is evaluated like any other, and changes nothing (A10).

use axum::http::{HeaderName, Method};
use hayward_node_status_api::drain::DrainView;
use hayward_node_status_api::{NodeEntry, NodeHistory};
use serde_json::json;

use crate::fixture::{Fixture, healthy_heartbeat, refusal_status};

const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_command_changes_nothing() {
    let fixture = Fixture::without_losses().await;
    for node in ["n1", "n2", "n3"] {
        fixture.send_heartbeat(node, &healthy_heartbeat()).await;
    }
    let operator = fixture.operator();
    let before = fixture.running().publisher.revision();
    let off = json!({ "schedulable": false, "reason": "new disk" });
    let path = "/v1/nodes/n1/schedulable";
    let dry_run = operator
        .call(Method::PUT, path)
        .if_match_any()
        .query("dry_run", true)
        .body(&off);
    let dry_run = dry_run.send_for_response::<NodeEntry>().await.unwrap();
    assert!(!dry_run.body.takes_work());
    assert_eq!(dry_run.headers["hayward-revision"], before.to_string());
    assert!(fixture.node("n1").await.entry.schedulable);
    assert!(
        fixture
            .send_heartbeat("n1", &healthy_heartbeat())
            .await
            .schedulable,
        "the answer to the agent is unchanged"
    );

    let path = "/v1/nodes/n1/drain";
    let request = json!({ "reason": "new disk" });
    let dry_run = operator
        .call(Method::PUT, path)
        .if_match_any()
        .query("dry_run", true)
        .body(&request);
    let dry_run: DrainView = dry_run.send().await.unwrap();
    assert_eq!(dry_run.order.reason, "new disk");
    assert_eq!(
        refusal_status(operator.get::<DrainView>(path).await),
        404,
        "the drain did not begin"
    );
    assert_eq!(fixture.node("n1").await.entry.drain, None);
    let history: NodeHistory = operator.get("/v1/nodes/n1/history").await.unwrap();
    assert!(history.changes.iter().all(|change| change.by.is_none()));
    let removal = operator
        .call(Method::DELETE, "/v1/nodes/n1")
        .if_match_any()
        .query("dry_run", true);
    assert_eq!(
        refusal_status(removal.send::<Option<()>>().await),
        409,
        "a dry run has the same checks"
    );
    assert_eq!(fixture.running().publisher.revision(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_cancellation_does_not_cancel_the_drain() {
    let fixture = Fixture::without_losses().await;
    for node in ["n1", "n2", "n3"] {
        fixture.send_heartbeat(node, &healthy_heartbeat()).await;
    }
    let operator = fixture.operator();
    let before = fixture.running().publisher.revision();
    let path = "/v1/nodes/n1/drain";
    let request = json!({ "reason": "new disk" });
    let begin = operator.call(Method::PUT, path).body(&request);
    let begin = begin.header(IF_REVISION, &before.to_string());
    begin.if_match_any().send::<DrainView>().await.unwrap();
    let dry_run = operator.call(Method::DELETE, path).query("dry_run", true);
    dry_run.if_match_any().send::<DrainView>().await.unwrap();
    assert!(
        fixture.node("n1").await.entry.drain.is_some(),
        "the drain is not cancelled"
    );
    let outdated = operator
        .call(Method::DELETE, path)
        .if_match_any()
        .header(IF_REVISION, &before.to_string());
    assert_eq!(refusal_status(outdated.send::<DrainView>().await), 412);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enrolment_cannot_be_a_dry_run() {
    let fixture = Fixture::without_losses().await;
    let operator = fixture.operator();
    let request = json!({ "node": "n9" });
    let dry_run = operator
        .call(Method::POST, "/v1/enrolments")
        .query("dry_run", true);
    let dry_run = dry_run.body(&request).idempotency_key("k1");
    assert_eq!(
        refusal_status(dry_run.send::<serde_json::Value>().await),
        422
    );
}
