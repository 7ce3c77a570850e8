//! Dry runs of placement requests.

use axum::http::Method;
use hayward_container_manager_api::placements::{
    PlacementList, PlacementReason, PlacementStatus, PlacementView,
};
use hayward_service::Code;
use serde_json::{Value, json};

use super::placements::{BASE, order, requests, running};

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_checks_a_request_and_changes_nothing() {
    let (fixture, _agent) = running().await;
    let (ann, before) = (fixture.client("ann"), fixture.revision());
    let ordered = format!("{BASE}/placements");
    let tried = |path: &str, body: Value| {
        let call = ann.call(Method::POST, path).query("dry_run", true);
        call.body(&body)
    };
    let wanted = json!({ "processor_id": "0", "destination_host": "n2" });
    let answer = tried(&ordered, wanted.clone()).answer::<PlacementView>();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body.processor_id.as_str(), "svc_1.0");
    assert!(!answer.body.status_code.is_final());
    let moved = tried(
        "/v1/containers/alc_1/moves",
        json!({ "destination_host": "n2" }),
    );
    assert_eq!(moved.answer::<PlacementView>().await.unwrap().status, 200);
    // The same checks as without `dry_run`.
    let absent = json!({ "processor_id": "svc_9.0", "destination_host": "n2" });
    let answer: PlacementView = tried(&ordered, absent).send().await.unwrap();
    assert_eq!(
        answer.status_code,
        PlacementStatus::BadRequest,
        "{answer:?}"
    );
    assert_eq!(answer.reason_code, Some(PlacementReason::UnknownProcessor));
    let own = json!({ "processor_id": "0", "destination_host": "" });
    let answer = tried(&ordered, own).send::<PlacementView>().await;
    assert_eq!(answer.unwrap_err().problem().unwrap().code, Code::Invalid);
    // No request was stored.
    let all: PlacementList = ann.get(&ordered).await.unwrap();
    assert!(all.placements.is_empty(), "{all:?}");
    assert!(requests(&fixture).await.is_empty());
    assert_eq!(fixture.revision(), before);

    let view = order(&fixture, json!({ "destination_host": "n2" }));
    let view = view.await.unwrap();
    let path = format!("{ordered}/{}", view.uuid);
    let back = ann.call(Method::DELETE, &path).query("dry_run", true);
    // The answer depends on whether it has started; in either case nothing changes.
    let _ = back.send::<Option<()>>().await;
    ann.get::<PlacementView>(&path).await.unwrap();
}
