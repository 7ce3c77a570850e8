//! Tests of the ends of items: each item ends in time, and its end is published once.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{BlockEntry, BlockEvent, BlockHistory, BlockOutcome, BlockRequest};
use hayward_publication::{Followed, Update};
use hayward_service::auth::Scope;
use hayward_service::runtime::clock::{Clock as _, SystemClock};
use hayward_testkit::until;
use hayward_vocabulary::Timestamp;
use serde_json::{Value, json};

use crate::fixture::{Fixture, PUBLICATION_PATH, default_item, permanent_item, refusal_status};

#[tokio::test(flavor = "multi_thread")]
async fn an_item_ends_by_itself_and_its_removal_is_published() {
    let fixture = Fixture::new().await;
    fixture.put_item(&permanent_item("k1")).await;
    let short = BlockRequest {
        duration_ms: Some(700),
        ..default_item("k2")
    };
    let item = fixture.add_item(&short).await.item.unwrap();
    let mut followed = Followed::<BlockEntry>::default();
    let update: Update<BlockEntry> = fixture
        .scheduler_client()
        .get(PUBLICATION_PATH)
        .await
        .unwrap();
    let cursor = update.cursor.clone();
    followed.absorb(update, 0);
    assert_eq!(followed.get("node/k2"), Some(&item));

    let next = format!("{PUBLICATION_PATH}?wait=20&since={cursor}");
    let update: Update<BlockEntry> = fixture.scheduler_client().get(&next).await.unwrap();
    assert_eq!(update.removed, ["node/k2"]);
    assert!(
        SystemClock.now() >= item.end.unwrap(),
        "the item is not removed before its end"
    );
    followed.absorb(update, 1);
    assert!(followed.get("node/k2").is_none() && followed.get("node/k1").is_some());

    let history: BlockHistory = fixture
        .viewer()
        .get("/v1/blocklist/history?limit=1")
        .await
        .unwrap();
    assert_eq!(
        (history.changes[0].event, &history.changes[0].by),
        (BlockEvent::Expired, &None)
    );
    let added = fixture.add_item(&short).await;
    assert_eq!(added.outcome, BlockOutcome::Added);
    assert_eq!(
        added.item.unwrap().removal_no,
        1,
        "an expiry counts as a removal"
    );
    let operator = fixture
        .operator()
        .get::<Update<BlockEntry>>(PUBLICATION_PATH)
        .await;
    assert_eq!(refusal_status(operator), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_reached_during_an_outage_is_respected() {
    let mut fixture = Fixture::new().await;
    let item = fixture
        .add_item(&BlockRequest {
            duration_ms: Some(300),
            ..default_item("k1")
        })
        .await
        .item;
    fixture.put_item(&permanent_item("k2")).await;
    fixture.crash_and_restart().await;
    until("the item has ended", async || {
        (SystemClock.now() >= item.as_ref()?.end?).then_some(())
    })
    .await;
    // Reads check the end themselves, even if the ledger has not removed the item yet.
    assert_eq!(refusal_status(fixture.show_item("k1").await), 404);
    assert_eq!(fixture.show_item("k2").await.unwrap().end, None);
    until("the item is removed", async || {
        let update: Update<BlockEntry> = fixture
            .scheduler_client()
            .get(PUBLICATION_PATH)
            .await
            .unwrap();
        (!update.changed.contains_key("node/k1")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_with_a_past_end_has_its_effect_once() {
    let fixture = Fixture::with_settings(Settings {
        check_interval_ms: 300,
        ..Settings::default()
    })
    .await;
    let past = SystemClock.now().minus_ms(60_000);
    let (status, answer) = fixture
        .put_item(&BlockRequest {
            end: Some(past),
            ..default_item("k1")
        })
        .await;
    assert_eq!(
        (status, answer.outcome),
        (201, BlockOutcome::Added),
        "a past end is accepted (scenario 12)"
    );
    let update: Update<BlockEntry> = fixture
        .scheduler_client()
        .get(PUBLICATION_PATH)
        .await
        .unwrap();
    let next = format!("{PUBLICATION_PATH}?wait=20&since={}", update.cursor);
    if update.changed.contains_key("node/k1") {
        let update: Update<BlockEntry> = fixture.scheduler_client().get(&next).await.unwrap();
        assert_eq!(
            update.removed,
            ["node/k1"],
            "the item is removed at the next check"
        );
    }
    let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
    let events: Vec<BlockEvent> = history.changes.iter().map(|change| change.event).collect();
    assert_eq!(events, [BlockEvent::Expired, BlockEvent::Added]);
}

/// Creates the body of a request to mark a node until `end`.
fn mark_until_body(cause: &str, end: Timestamp) -> Value {
    json!({"action": "MARK_BLOCKLISTED", "cause": cause, "end_timestamp": end})
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_and_writes_agree_whether_an_item_has_ended() {
    let mut fixture = Fixture::with_settings(Settings {
        check_interval_ms: 600_000,
        ..Settings::default()
    })
    .await;
    let past = SystemClock.now().minus_ms(60_000);
    let (status, _) = fixture
        .put_block("nodes/k1", &mark_until_body("disk", past))
        .await;
    assert_eq!(status, 201);
    // The item exists until the next check, for readers and for further requests.
    let view = fixture.read_block("nodes/k1").await.unwrap();
    assert!(view.item.end.unwrap() > SystemClock.now());
    assert_eq!(
        fixture
            .put_block_status("nodes/k1", &mark_until_body("disk", past))
            .await,
        200
    );
    let (status, _) = fixture
        .expect_refusal("nodes/k1", &mark_until_body("net", past))
        .await;
    assert_eq!(status, 409);
    fixture.unblock("nodes/k1").await;

    fixture
        .restart_with(|settings| settings.check_interval_ms = 50)
        .await;
    for cause in ["disk", "net", "fan"] {
        let (status, _) = fixture
            .put_block("nodes/k1", &mark_until_body(cause, past))
            .await;
        assert_eq!(
            status, 201,
            "{cause}: an item that is not shown can be added again"
        );
        until("the item is removed at the next check", async || {
            let view = fixture.read_block("nodes/k1").await;
            view.is_err().then(|| assert_eq!(refusal_status(view), 404))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_without_an_end_gets_the_default_duration() {
    let fixture = Fixture::with_settings(Settings {
        default_duration_ms: 5_000,
        ..Settings::default()
    })
    .await;
    let item = fixture.add_item(&default_item("k1")).await.item.unwrap();
    assert_eq!(item.end, Some(item.start.plus_ms(5_000)));
    let submitter = fixture.client("sam", Scope::Submitter);
    let view: BlockEntry = submitter.get("/v1/blocklist/items/NODE/k1").await.unwrap();
    assert_eq!(view, item);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_is_remembered_for_the_configured_time() {
    let fixture = Fixture::with_settings(Settings {
        tombstone_ttl_ms: 200,
        ..Settings::default()
    })
    .await;
    fixture.put_item(&permanent_item("k1")).await;
    let _: Option<()> = fixture
        .operator()
        .delete("/v1/blocklist/items/node/k1")
        .await
        .unwrap();
    let copy = BlockRequest {
        removal_no: Some(0),
        ..permanent_item("k1")
    };
    until("the copy is added as a new item", async || {
        (fixture.add_item(&copy).await.outcome == BlockOutcome::Added).then_some(())
    })
    .await;
}
