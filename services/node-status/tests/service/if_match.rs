//! `If-Match`: a change of a node names the version of the node that the caller has read (A5).

use axum::http::Method;
use axum::http::header::IF_MATCH;
use hayward_node_status_api::NodeEntry;
use hayward_node_status_api::drain::DrainView;
use hayward_service::http::problem::Code;
use serde_json::{Value, json};

use crate::fixture::{Fixture, healthy_heartbeat, refusal, refusal_status};

#[tokio::test(flavor = "multi_thread")]
async fn a_change_requires_the_version_that_was_read() {
    let fixture = Fixture::without_losses().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let (operator, node) = (fixture.operator(), "/v1/nodes/n1");
    let response = operator
        .call(Method::GET, node)
        .send_for_response::<Value>()
        .await
        .unwrap();
    let tag = response.headers["etag"].to_str().unwrap().to_owned();
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let second_response = operator
        .call(Method::GET, node)
        .send_for_response::<Value>()
        .await
        .unwrap();
    assert_eq!(
        second_response.headers["etag"], tag,
        "a heartbeat does not change the version"
    );
    let vary = |tag: &str, on: bool| {
        let call = operator.call(Method::PUT, "/v1/nodes/n1/schedulable");
        call.body(&json!({ "schedulable": on }))
            .header(IF_MATCH, tag)
    };
    let response = vary(&tag, false)
        .send_for_response::<NodeEntry>()
        .await
        .unwrap();
    let revision = response.headers["hayward-revision"].to_str().unwrap();
    assert_eq!(
        refusal_status(vary(&tag, true).send::<NodeEntry>().await),
        412
    );
    assert!(!fixture.node("n1").await.entry.schedulable);
    vary(&format!("\"{revision}\""), true)
        .send::<NodeEntry>()
        .await
        .unwrap();
    let invalid = refusal(vary("W/soon", true).send::<NodeEntry>().await);
    assert_eq!(invalid, (400, vec!["/header/if-match".to_owned()]));
    let drain = operator
        .call(Method::PUT, "/v1/nodes/n1/drain")
        .body(&json!({ "reason": "x" }));
    let drain = drain.header(IF_MATCH, &tag).send::<DrainView>().await;
    assert_eq!(refusal_status(drain), 412);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_needs_if_match() {
    let fixture = Fixture::without_losses().await;
    fixture.send_heartbeat("n1", &healthy_heartbeat()).await;
    let operator = fixture.operator();
    let reason = json!({ "reason": "x" });
    let commands = [
        (Method::PUT, "/schedulable", json!({ "schedulable": false })),
        (Method::PUT, "/drain", reason),
        (Method::DELETE, "/drain", Value::Null),
        (Method::PUT, "/identity", json!({ "agent_instance": "a" })),
        (Method::DELETE, "", Value::Null),
    ];
    for (method, suffix, body) in commands {
        let path = format!("/v1/nodes/n1{suffix}");
        let call = || operator.call(method.clone(), &path).body(&body);
        let refused = call().send::<Value>().await.unwrap_err();
        let problem = refused.problem().unwrap();
        assert_eq!(problem.code, Code::PreconditionRequired, "{method} {path}");
        let outdated = call().header(IF_MATCH, "\"1000000\"").send::<Value>();
        assert_eq!(refusal_status(outdated.await), 412, "{method} {path}");
    }
    assert!(
        fixture.node("n1").await.entry.takes_work(),
        "a refused command changes nothing"
    );
    let off = operator.call(Method::PUT, "/v1/nodes/n1/schedulable");
    let off = off.body(&json!({ "schedulable": false })).if_match_any();
    assert!(!off.send::<NodeEntry>().await.unwrap().schedulable);
}
