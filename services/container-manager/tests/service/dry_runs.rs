//! Dry runs of placement requests.
//!
//! Start state: the processor `svc_1.0` of the user ann runs on `n1` in container `alc_1`.

use axum::http::Method;
use hayward_container_manager_api::placements::{
    PlacementList, PlacementReason, PlacementStatus, PlacementView,
};
use hayward_service::Code;
use serde_json::{Value, json};

use super::placements::{DEPLOYMENT_PATH, open_requests, running_service, submit};

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_checks_a_request_and_changes_nothing() {
    let (fixture, _agent) = running_service().await;
    let (ann, revision) = (fixture.client("ann"), fixture.revision());
    let placements = format!("{DEPLOYMENT_PATH}/placements");
    let dry_run = |path: &str, body: Value| {
        let call = ann.call(Method::POST, path).query("dry_run", true);
        call.body(&body)
    };
    let valid = json!({ "processor_id": "0", "destination_host": "n2" });
    let response = dry_run(&placements, valid).send_for_response::<PlacementView>();
    let response = response.await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.body.processor_id.as_str(), "svc_1.0");
    assert!(!response.body.status_code.is_final());
    let moved = dry_run(
        "/v1/containers/alc_1/moves",
        json!({ "destination_host": "n2" }),
    );
    assert_eq!(
        moved
            .send_for_response::<PlacementView>()
            .await
            .unwrap()
            .status,
        200
    );
    // A dry run makes the same checks as a submission.
    let unknown_processor = json!({ "processor_id": "svc_9.0", "destination_host": "n2" });
    let view: PlacementView = dry_run(&placements, unknown_processor)
        .send()
        .await
        .unwrap();
    assert_eq!(view.status_code, PlacementStatus::BadRequest, "{view:?}");
    assert_eq!(view.reason_code, Some(PlacementReason::UnknownProcessor));
    let no_host = json!({ "processor_id": "0", "destination_host": "" });
    let result = dry_run(&placements, no_host).send::<PlacementView>().await;
    assert_eq!(result.unwrap_err().problem().unwrap().code, Code::Invalid);
    // No request was stored.
    let list: PlacementList = ann.get(&placements).await.unwrap();
    assert!(list.placements.is_empty(), "{list:?}");
    assert!(open_requests(&fixture).await.is_empty());
    assert_eq!(fixture.revision(), revision);

    let view = submit(&fixture, json!({ "destination_host": "n2" }));
    let view = view.await.unwrap();
    let path = format!("{placements}/{}", view.uuid);
    let withdrawal = ann.call(Method::DELETE, &path).query("dry_run", true);
    // The result depends on whether the request has started. In either case nothing changes.
    let _ = withdrawal.send::<Option<()>>().await;
    ann.get::<PlacementView>(&path).await.unwrap();
}
