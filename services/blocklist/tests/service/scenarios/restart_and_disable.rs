//! Scenarios of a restart of the blocklist, and of a blocklist that is disabled and enabled again.

use hayward_blocklist_api::{BlockAnswer, StrategyView};
use hayward_testkit::until;
use serde_json::json;

use super::{evacuate_body, mark_body};
use crate::fixture::{Fixture, ROOT_PATH};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_nothing() {
    let mut fixture = Fixture::new().await;
    let mut graceful = evacuate_body();
    graceful["evacuation"] = json!({ "policy": "GRACEFUL", "grace_ms": 90_000 });
    graceful["scope"] = json!("JOB:job_1");
    fixture.put_block("nodes/k1", &graceful).await;
    fixture.put_block("nodes/k2", &mark_body(60_000)).await;
    fixture.unblock("nodes/k2").await;
    fixture.set_strategy("flapping", json!({ "n": 7 })).await;
    let (before, overview) = (fixture.published_entries().await, fixture.overview().await);
    fixture.crash_and_restart().await;
    assert_eq!(fixture.published_entries().await, before);
    let items: Vec<_> = fixture
        .overview()
        .await
        .nodes
        .into_iter()
        .map(|view| view.item)
        .collect();
    assert_eq!(
        items,
        overview
            .nodes
            .into_iter()
            .map(|view| view.item)
            .collect::<Vec<_>>()
    );
    let (_, added) = fixture.put_block("nodes/k2", &mark_body(60_000)).await;
    assert_eq!(added.item.unwrap().removal_no, 1);
    let path = format!("{ROOT_PATH}/strategy");
    let strategy: StrategyView = fixture.viewer().get(&path).await.unwrap();
    assert_eq!(
        (strategy.name.as_str(), &strategy.parameters["n"]),
        ("flapping", &json!(7))
    );
    assert_eq!(strategy.by.as_deref(), Some("ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_blocklist_is_empty() {
    let mut fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body(600_000)).await;
    fixture
        .restart_with(|settings| settings.enabled = false)
        .await;
    assert!(
        until("the publication is empty (BL-10)", async || {
            fixture.published_entries().await.is_empty().then_some(true)
        })
        .await
    );
    let overview = fixture.overview().await;
    assert!(overview.nodes.is_empty());
    let operator = fixture.operator();
    let path = format!("{ROOT_PATH}/nodes/k2");
    let refused = operator.put::<_, BlockAnswer>(&path, &mark_body(1)).await;
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 409);
    assert_eq!(problem.code.as_str(), "blocklist_disabled");
    assert!(fixture.changes(overview.version).await.changes.is_empty());
    fixture
        .restart_with(|settings| settings.enabled = true)
        .await;
    fixture
        .wait_for_entry("node/k1", "the item is published again", |_| true)
        .await;
}
