//! Dry runs of requests (A10).

use axum::http::{HeaderName, Method};
use hayward_blocklist_api::{BlockAnswer, BlockBatchAnswer, BlockOutcome, StrategyView};
use serde_json::{Value, json};

use crate::fixture::{Fixture, mark, refusal};

const IF_REVISION: HeaderName = HeaderName::from_static("if-revision");

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_block_checks_everything_and_changes_nothing() {
    let fixture = Fixture::new().await;
    let (operator, path) = (fixture.operator(), "/v1/blocklist/nodes/k1");
    let order = json!({ "action": "MARK_BLOCKLISTED", "cause": "disk slow" });
    let before = fixture.revision();
    let tried = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&order);
    let tried = tried.answer::<BlockAnswer>().await.unwrap();
    assert_eq!(
        (tried.status.as_u16(), tried.body.outcome),
        (200, BlockOutcome::Added)
    );
    assert_eq!(tried.body.item.unwrap().cause, "disk slow");
    assert_eq!((tried.body.revision, fixture.revision()), (before, before));
    assert!(fixture.published().await.is_empty());
    let odd = json!({ "action": "MARK_BLOCKLISTED", "cause": "" });
    let odd = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&odd);
    assert_eq!(refusal(odd.send::<BlockAnswer>().await).0, 422);

    // The request succeeds at the revision of the dry run, and fails at an older one.
    let made = operator.call(Method::PUT, path).body(&order);
    let made = made.header(IF_REVISION, &before.to_string());
    assert_eq!(made.answer::<BlockAnswer>().await.unwrap().status, 201);
    let late = operator
        .call(Method::DELETE, path)
        .header(IF_REVISION, &before.to_string());
    assert_eq!(refusal(late.send::<Option<()>>().await).0, 412);
    let tried = operator.call(Method::DELETE, path).query("dry_run", true);
    tried.send::<Option<()>>().await.unwrap();
    assert_eq!(fixture.published().await.len(), 1, "not taken away");
    let none = operator.call(Method::DELETE, "/v1/blocklist/nodes/k2");
    let none = none.query("dry_run", true).send::<Option<()>>().await;
    assert_eq!(refusal(none).0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_strategies_support_dry_runs() {
    let fixture = Fixture::new().await;
    let operator = fixture.operator();
    let batch = json!({ "items": [mark("k1"), mark("k2"), mark("k1")] });
    let tried = operator
        .call(Method::POST, "/v1/blocklist/items")
        .query("dry_run", true);
    let tried: BlockBatchAnswer = tried.body(&batch).send().await.unwrap();
    assert_eq!((tried.added, tried.results.len()), (2, 2));
    assert!(fixture.published().await.is_empty());

    let path = "/v1/blocklist/strategy";
    let before: StrategyView = operator.get(path).await.unwrap();
    let order = json!({ "name": "always" });
    let refused = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&order);
    assert_eq!(
        refusal(refused.send::<Value>().await).0,
        422,
        "no such strategy"
    );
    let order = json!({ "name": before.name });
    let tried = operator
        .call(Method::PUT, path)
        .query("dry_run", true)
        .body(&order);
    let tried: StrategyView = tried.send().await.unwrap();
    assert_eq!(
        (tried.name, tried.by.as_deref()),
        (before.name.clone(), Some("ann"))
    );
    assert_eq!(operator.get::<StrategyView>(path).await.unwrap(), before);
}
