//! Scenarios of owners: they keep a copy of the list, announce their copies again, and block the
//! same node.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{BlockOverview, ChangeReason};
use serde_json::json;

use super::{add_as_owner, evacuate_body, mark_body};
use crate::fake_scheduler::node_entry;
use crate::fixture::{Fixture, ROOT_PATH, refusal_status};

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_reads_the_list_once_and_then_its_changes() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    fixture.put_block("nodes/k2", &evacuate_body()).await;
    let owner = fixture.owner();
    let overview: BlockOverview = owner.get(ROOT_PATH).await.unwrap();
    assert_eq!(
        overview.nodes.len(),
        2,
        "the list has both items (scenario 13)"
    );
    assert!(
        fixture.changes(overview.version).await.changes.is_empty(),
        "the changes start after the list (scenario 13)"
    );
    // The owner is offline for a while, and then requests the changes that it missed.
    drop(owner);
    fixture.put_block("nodes/k3", &mark_body(60_000)).await;
    let missed = fixture.changes(overview.version).await;
    let names: Vec<_> = missed
        .changes
        .iter()
        .map(|change| &change.item.identifier)
        .collect();
    assert_eq!(names, ["k3"]);
    assert!(fixture.changes(missed.version).await.changes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_copy_restores_nothing_and_a_new_item_is_added() {
    let fixture = Fixture::new().await;
    let (_, first) = fixture.put_block("nodes/k3", &mark_body(60_000)).await;
    assert_eq!(first.item.unwrap().removal_no, 0);
    fixture.unblock("nodes/k3").await;
    let copy = json!({
        "type": "NODE", "identifier": "k3", "action": "MARK_BLOCKLISTED", "cause": "disk slow",
        "duration_ms": 60_000, "removal_no": 0,
    });
    let stale = add_as_owner(&fixture, "detector:disks", copy.clone()).await;
    assert_eq!(
        (stale.stale, stale.added),
        (1, 0),
        "a copy from before the removal is ignored (scenario 19)"
    );
    assert_eq!(stale.results[0].reason.as_deref(), Some("STALE_COPY"));
    assert_eq!(
        refusal_status(fixture.read_block("nodes/k3").await),
        404,
        "a copy does not restore a removed item (BL-6)"
    );
    let (status, fresh) = fixture.put_block("nodes/k3", &mark_body(60_000)).await;
    assert_eq!(
        (status, fresh.item.unwrap().removal_no),
        (201, 1),
        "a new item is added (scenario 20)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_two_owners_merge_on_one_node() {
    let fixture = Fixture::with_settings(Settings {
        max_blocked_percent: 100,
        pool_floor: 0,
        ..Settings::default()
    })
    .await;
    fixture
        .scheduler
        .publish_nodes(&[node_entry("k3", true), node_entry("k4", true)]);
    fixture.wait_for_node("k4").await;
    let item = |cause: &str, duration_ms: u64, removal_no: Option<u64>| {
        json!({
            "type": "NODE", "identifier": "k3", "action": "MARK_BLOCKLISTED", "cause": cause,
            "duration_ms": duration_ms, "removal_no": removal_no,
        })
    };
    let added = add_as_owner(&fixture, "detector:p", item("disk slow", 600_000, None)).await;
    assert_eq!(added.added, 1);
    let merged = add_as_owner(&fixture, "detector:q", item("io wait", 1_500_000, None)).await;
    assert_eq!(merged.merged, 1);
    let entry = merged.results[0].item.clone().unwrap();
    assert_eq!(entry.cause, "disk slow, io wait");
    let copy = add_as_owner(&fixture, "detector:p", item("disk slow", 300_000, Some(0))).await;
    assert_eq!(copy.unchanged, 1);
    fixture.unblock("nodes/k3").await;
    let changes = fixture.changes(merged.revision).await.changes;
    assert_eq!(changes.len(), 1, "the removal is one change");
    assert_eq!(changes[0].reason, Some(ChangeReason::Removed));
    let stale = add_as_owner(&fixture, "detector:q", item("io wait", 1_500_000, Some(0))).await;
    assert_eq!(stale.stale, 1);
    let fresh = add_as_owner(&fixture, "detector:q", item("io wait", 1_500_000, None)).await;
    assert_eq!(fresh.added, 1);
    assert_eq!(fresh.results[0].item.as_ref().unwrap().removal_no, 1);
}
