//! Tests of dry runs: a request with `dry_run=true` is checked and changes nothing (A10).

use axum::http::{HeaderName, Method};
use hayward_blocklist_api::{BlockAnswer, BlockBatchAnswer, BlockOutcome, StrategyView};
use serde_json::{Value, json};

use crate::fixture::{Fixture, default_item, refusal_status};

const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_block_checks_everything_and_changes_nothing() {
    let fixture = Fixture::new().await;
    let (operator, path) = (fixture.operator(), "/v1/blocklist/nodes/k1");
    let body = json!({ "action": "MARK_BLOCKLISTED", "cause": "disk slow" });
    let revision = fixture.revision();
    let dry_run = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&body);
    let dry_run = dry_run.send_for_response::<BlockAnswer>().await.unwrap();
    assert_eq!(
        (dry_run.status.as_u16(), dry_run.body.outcome),
        (200, BlockOutcome::Added)
    );
    assert_eq!(dry_run.body.item.unwrap().cause, "disk slow");
    assert_eq!(
        (dry_run.body.revision, fixture.revision()),
        (revision, revision)
    );
    assert!(fixture.published_entries().await.is_empty());
    let invalid = json!({ "action": "MARK_BLOCKLISTED", "cause": "" });
    let invalid = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&invalid);
    assert_eq!(refusal_status(invalid.send::<BlockAnswer>().await), 422);

    // The request succeeds at the revision of the dry run, and fails at an older one.
    let accepted = operator.call(Method::PUT, path).body(&body);
    let accepted = accepted.header(IF_REVISION, &revision.to_string());
    assert_eq!(
        accepted
            .send_for_response::<BlockAnswer>()
            .await
            .unwrap()
            .status,
        201
    );
    let outdated = operator
        .call(Method::DELETE, path)
        .header(IF_REVISION, &revision.to_string());
    assert_eq!(refusal_status(outdated.send::<Option<()>>().await), 412);
    let dry_run = operator.call(Method::DELETE, path).query("dry_run", true);
    dry_run.send::<Option<()>>().await.unwrap();
    assert_eq!(
        fixture.published_entries().await.len(),
        1,
        "the block remains"
    );
    let not_blocked = operator.call(Method::DELETE, "/v1/blocklist/nodes/k2");
    let not_blocked = not_blocked
        .query("dry_run", true)
        .send::<Option<()>>()
        .await;
    assert_eq!(refusal_status(not_blocked), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_strategies_support_dry_runs() {
    let fixture = Fixture::new().await;
    let operator = fixture.operator();
    let batch = json!({ "items": [default_item("k1"), default_item("k2"), default_item("k1")] });
    let dry_run = operator
        .call(Method::POST, "/v1/blocklist/items")
        .query("dry_run", true);
    let dry_run: BlockBatchAnswer = dry_run.body(&batch).send().await.unwrap();
    assert_eq!((dry_run.added, dry_run.results.len()), (2, 2));
    assert!(fixture.published_entries().await.is_empty());

    let path = "/v1/blocklist/strategy";
    let before: StrategyView = operator.get(path).await.unwrap();
    let request = json!({ "name": "always" });
    let refused = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&request);
    assert_eq!(
        refusal_status(refused.send::<Value>().await),
        422,
        "the strategy is unknown"
    );
    let request = json!({ "name": before.name });
    let dry_run = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&request);
    let dry_run: StrategyView = dry_run.send().await.unwrap();
    assert_eq!(
        (dry_run.name, dry_run.by.as_deref()),
        (before.name.clone(), Some("ann"))
    );
    assert_eq!(operator.get::<StrategyView>(path).await.unwrap(), before);
}
