//! Dry runs of commands, and `If-Match` (A10).

use axum::http::header::IF_MATCH;
use axum::http::{HeaderName, Method};
use hayward_node_status_api::drain::DrainView;
use hayward_node_status_api::{NodeEntry, NodeHistory};
use hayward_service::http::problem::Code;
use serde_json::{Value, json};

use crate::fixture::{Fixture, refusal, well};

const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_command_changes_nothing() {
    let fixture = Fixture::calm().await;
    for node in ["n1", "n2", "n3"] {
        fixture.beat(node, &well()).await;
    }
    let operator = fixture.operator();
    let before = fixture.running().publisher.revision();
    let off = json!({ "schedulable": false, "reason": "new disk" });
    let path = "/v1/nodes/n1/schedulable";
    let tried = operator
        .call(Method::PUT, path)
        .if_match_any()
        .query("dry_run", true)
        .body(&off);
    let tried = tried.answer::<NodeEntry>().await.unwrap();
    assert!(!tried.body.takes_work());
    assert_eq!(tried.headers["hayward-revision"], before.to_string());
    assert!(fixture.node("n1").await.entry.schedulable);
    assert!(
        fixture.beat("n1", &well()).await.schedulable,
        "nor to its agent"
    );

    let path = "/v1/nodes/n1/drain";
    let order = json!({ "reason": "new disk" });
    let tried = operator
        .call(Method::PUT, path)
        .if_match_any()
        .query("dry_run", true)
        .body(&order);
    let tried: DrainView = tried.send().await.unwrap();
    assert_eq!(tried.order.reason, "new disk");
    assert_eq!(
        refusal(operator.get::<DrainView>(path).await).0,
        404,
        "it never began"
    );
    assert_eq!(fixture.node("n1").await.entry.drain, None);
    let history: NodeHistory = operator.get("/v1/nodes/n1/history").await.unwrap();
    assert!(history.changes.iter().all(|change| change.by.is_none()));
    let early = operator
        .call(Method::DELETE, "/v1/nodes/n1")
        .if_match_any()
        .query("dry_run", true);
    assert_eq!(
        refusal(early.send::<Option<()>>().await).0,
        409,
        "the same checks"
    );
    assert_eq!(fixture.running().publisher.revision(), before);

    let made = operator.call(Method::PUT, path).body(&order);
    let made = made.header(IF_REVISION, &before.to_string());
    made.if_match_any().send::<DrainView>().await.unwrap();
    let tried = operator.call(Method::DELETE, path).query("dry_run", true);
    tried.if_match_any().send::<DrainView>().await.unwrap();
    assert!(fixture.node("n1").await.entry.drain.is_some(), "it lasts");
    let late = operator
        .call(Method::DELETE, path)
        .if_match_any()
        .header(IF_REVISION, &before.to_string());
    assert_eq!(refusal(late.send::<DrainView>().await).0, 412);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enrolment_cannot_be_a_dry_run() {
    let fixture = Fixture::calm().await;
    let operator = fixture.operator();
    let order = json!({ "node": "n9" });
    let tried = operator
        .call(Method::POST, "/v1/enrolments")
        .query("dry_run", true);
    let tried = tried.body(&order).idempotency_key("k1");
    assert_eq!(refusal(tried.send::<serde_json::Value>().await).0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_requires_the_version_that_was_read() {
    let fixture = Fixture::calm().await;
    fixture.beat("n1", &well()).await;
    let (operator, node) = (fixture.operator(), "/v1/nodes/n1");
    let seen = operator
        .call(Method::GET, node)
        .answer::<Value>()
        .await
        .unwrap();
    let tag = seen.headers["etag"].to_str().unwrap().to_owned();
    fixture.beat("n1", &well()).await;
    let again = operator
        .call(Method::GET, node)
        .answer::<Value>()
        .await
        .unwrap();
    assert_eq!(again.headers["etag"], tag, "heartbeats change nothing");
    let vary = |tag: &str, on: bool| {
        let call = operator.call(Method::PUT, "/v1/nodes/n1/schedulable");
        call.body(&json!({ "schedulable": on }))
            .header(IF_MATCH, tag)
    };
    let done = vary(&tag, false).answer::<NodeEntry>().await.unwrap();
    let revision = done.headers["hayward-revision"].to_str().unwrap();
    assert_eq!(refusal(vary(&tag, true).send::<NodeEntry>().await).0, 412);
    assert!(!fixture.node("n1").await.entry.schedulable);
    vary(&format!("\"{revision}\""), true)
        .send::<NodeEntry>()
        .await
        .unwrap();
    let odd = refusal(vary("W/soon", true).send::<NodeEntry>().await);
    assert_eq!(odd, (400, vec!["/header/if-match".to_owned()]));
    let drain = operator
        .call(Method::PUT, "/v1/nodes/n1/drain")
        .body(&json!({ "reason": "x" }));
    let drain = drain.header(IF_MATCH, &tag).send::<DrainView>().await;
    assert_eq!(refusal(drain).0, 412);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_needs_if_match() {
    let fixture = Fixture::calm().await;
    fixture.beat("n1", &well()).await;
    let operator = fixture.operator();
    let because = json!({ "reason": "x" });
    let orders = [
        (Method::PUT, "/schedulable", json!({ "schedulable": false })),
        (Method::PUT, "/drain", because),
        (Method::DELETE, "/drain", Value::Null),
        (Method::PUT, "/identity", json!({ "agent_instance": "a" })),
        (Method::DELETE, "", Value::Null),
    ];
    for (method, part, body) in orders {
        let path = format!("/v1/nodes/n1{part}");
        let order = || operator.call(method.clone(), &path).body(&body);
        let unread = order().send::<Value>().await.unwrap_err();
        let unread = unread.problem().unwrap();
        assert_eq!(unread.code, Code::PreconditionRequired, "{method} {path}");
        let stale = order().header(IF_MATCH, "\"1000000\"").send::<Value>();
        assert_eq!(refusal(stale.await).0, 412, "{method} {path}");
    }
    assert!(
        fixture.node("n1").await.entry.takes_work(),
        "nothing was done"
    );
    let off = operator.call(Method::PUT, "/v1/nodes/n1/schedulable");
    let off = off.body(&json!({ "schedulable": false })).if_match_any();
    assert!(!off.send::<NodeEntry>().await.unwrap().schedulable);
}
