//! Scenarios of items that end: by time, without a requested end, and at once.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{BlockOutcome, ChangeKind, ChangeReason, FeedChanges};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use serde_json::json;

use super::{add_as_owner, mark_body};
use crate::fixture::{Fixture, ROOT_PATH, refusal_status};

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_unblocked_once_at_its_end() {
    let fixture = Fixture::new().await;
    let (_, added) = fixture.put_block("nodes/k1", &mark_body(300)).await;
    let path = format!("{ROOT_PATH}/changes?after={}&wait_ms=20000", added.revision);
    let feed: FeedChanges = fixture.viewer().get(&path).await.unwrap();
    let kinds: Vec<_> = feed
        .changes
        .iter()
        .map(|change| (change.kind, change.reason))
        .collect();
    assert_eq!(
        kinds,
        [(ChangeKind::Unblocked, Some(ChangeReason::Expired))],
        "an end is published once (BL-8)"
    );
    assert!(fixture.published_entries().await.is_empty());
    assert!(fixture.overview().await.nodes.is_empty());
    assert_eq!(refusal_status(fixture.read_block("nodes/k1").await), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_past_end_has_its_effect_once() {
    let fixture = Fixture::new().await;
    let end = SystemClock.now().minus_ms(60_000);
    let body = json!({ "action": "MARK_BLOCKLISTED", "cause": "late", "end_timestamp": end });
    let (status, added) = fixture.put_block("nodes/k1", &body).await;
    assert_eq!((status, added.outcome), (201, BlockOutcome::Added));
    let path = format!("{ROOT_PATH}/changes?after={}&wait_ms=20000", added.revision);
    let feed: FeedChanges = fixture.viewer().get(&path).await.unwrap();
    assert_eq!(feed.changes[0].reason, Some(ChangeReason::Expired));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_at_most_one_end_and_permanent_must_be_explicit() {
    let fixture = Fixture::with_settings(Settings {
        default_duration_ms: 5_000,
        ..Settings::default()
    })
    .await;
    let mut with_two_ends = mark_body(1);
    with_two_ends["end_timestamp"] = json!(SystemClock.now());
    assert_eq!(
        fixture
            .expect_refusal_status("nodes/k1", &with_two_ends)
            .await,
        422,
        "an end and a duration exclude each other (scenario 24)"
    );
    let negative = json!({ "action": "MARK_BLOCKLISTED", "cause": "x", "duration_ms": -1 });
    let pointers = vec!["/duration_ms".to_owned()];
    assert_eq!(
        fixture.expect_refusal("nodes/k1", &negative).await,
        (422, pointers)
    );
    let without_end = json!({ "action": "MARK_BLOCKLISTED", "cause": "x" });
    let item = fixture
        .put_block_answer("nodes/k1", &without_end)
        .await
        .item
        .unwrap();
    assert_eq!(
        item.end,
        Some(item.start.plus_ms(5_000)),
        "the default duration applies (scenario 25)"
    );
    let permanent = json!({ "action": "MARK_BLOCKLISTED", "cause": "x", "permanent": true });
    let item = fixture
        .put_block_answer("nodes/k2", &permanent)
        .await
        .item
        .unwrap();
    assert_eq!(item.end, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zero_duration_does_nothing_for_a_strategy_and_has_one_effect_for_an_operator() {
    let fixture = Fixture::new().await;
    let zero_duration = json!({
        "type": "NODE", "identifier": "k1", "action": "mark", "cause": "slow", "duration_ms": 0,
    });
    let revision = fixture.revision();
    let result = add_as_owner(&fixture, "detector:disks", zero_duration).await;
    assert_eq!((result.unchanged, result.added), (1, 0));
    assert_eq!(result.results[0].reason.as_deref(), Some("ZERO_DURATION"));
    assert_eq!(
        fixture.revision(),
        revision,
        "an unchanged item is not written (BL-2)"
    );
    let (status, added) = fixture.put_block("nodes/k1", &mark_body(0)).await;
    assert_eq!((status, added.outcome), (201, BlockOutcome::Added));
    let path = format!("{ROOT_PATH}/changes?after={}&wait_ms=20000", added.revision);
    let feed: FeedChanges = fixture.viewer().get(&path).await.unwrap();
    assert_eq!(feed.changes[0].reason, Some(ChangeReason::Expired));
}
