//! Ends of items.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{BlockOutcome, ChangeKind, ChangeReason, FeedChanges};
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use serde_json::json;

use super::{announce, mark};
use crate::fixture::{Fixture, ROOT, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn an_end_unblocks_once() {
    let fixture = Fixture::new().await;
    let (_, added) = fixture.order("nodes/k1", &mark(300)).await;
    let path = format!("{ROOT}/changes?after={}&wait_ms=20000", added.revision);
    let news: FeedChanges = fixture.viewer().get(&path).await.unwrap();
    let answer: Vec<_> = news
        .changes
        .iter()
        .map(|one| (one.kind, one.reason))
        .collect();
    assert_eq!(
        answer,
        [(ChangeKind::Unblocked, Some(ChangeReason::Expired))],
        "BL-8"
    );
    assert!(fixture.published().await.is_empty());
    assert!(fixture.overview().await.nodes.is_empty());
    assert_eq!(refusal(fixture.read_block("nodes/k1").await).0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_past_end_has_its_effect_once() {
    let fixture = Fixture::new().await;
    let end = SystemClock.now().minus_ms(60_000);
    let order = json!({ "action": "MARK_BLOCKLISTED", "cause": "late", "end_timestamp": end });
    let (status, added) = fixture.order("nodes/k1", &order).await;
    assert_eq!((status, added.outcome), (201, BlockOutcome::Added));
    let path = format!("{ROOT}/changes?after={}&wait_ms=20000", added.revision);
    let news: FeedChanges = fixture.viewer().get(&path).await.unwrap();
    assert_eq!(news.changes[0].reason, Some(ChangeReason::Expired));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_at_most_one_time_and_permanent_must_be_explicit() {
    let fixture = Fixture::with(Settings {
        default_duration_ms: 5_000,
        ..Settings::default()
    })
    .await;
    let mut both = mark(1);
    both["end_timestamp"] = json!(SystemClock.now());
    assert_eq!(fixture.refused("nodes/k1", &both).await.0, 422, "24");
    let negative = json!({ "action": "MARK_BLOCKLISTED", "cause": "x", "duration_ms": -1 });
    let pointers = vec!["/duration_ms".to_owned()];
    assert_eq!(
        fixture.refused("nodes/k1", &negative).await,
        (422, pointers)
    );
    let none = json!({ "action": "MARK_BLOCKLISTED", "cause": "x" });
    let item = fixture.order("nodes/k1", &none).await.1.item.unwrap();
    assert_eq!(item.end, Some(item.start.plus_ms(5_000)), "25");
    let for_ever = json!({ "action": "MARK_BLOCKLISTED", "cause": "x", "permanent": true });
    let item = fixture.order("nodes/k2", &for_ever).await.1.item.unwrap();
    assert_eq!(item.end, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zero_duration_does_nothing_for_a_strategy_and_has_one_effect_for_an_operator() {
    let fixture = Fixture::new().await;
    let nothing = json!({
        "type": "NODE", "identifier": "k1", "action": "mark", "cause": "slow", "duration_ms": 0,
    });
    let revision = fixture.revision();
    let answer = announce(&fixture, "detector:disks", nothing).await;
    assert_eq!((answer.unchanged, answer.added), (1, 0));
    assert_eq!(answer.results[0].reason.as_deref(), Some("ZERO_DURATION"));
    assert_eq!(fixture.revision(), revision, "BL-2");
    let (status, added) = fixture.order("nodes/k1", &mark(0)).await;
    assert_eq!((status, added.outcome), (201, BlockOutcome::Added));
    let path = format!("{ROOT}/changes?after={}&wait_ms=20000", added.revision);
    let news: FeedChanges = fixture.viewer().get(&path).await.unwrap();
    assert_eq!(news.changes[0].reason, Some(ChangeReason::Expired));
}
