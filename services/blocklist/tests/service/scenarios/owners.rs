//! Scenarios of owners that keep a copy of the list, of items for one job, of restarts, and of a
//! disabled blocklist.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{BlockAnswer, BlockOverview, ChangeReason, StrategyView};
use hayward_testkit::until;
use serde_json::json;

use super::{add_as_owner, evacuate_body, mark_body};
use crate::fake_scheduler::node_entry;
use crate::fixture::{Fixture, ROOT_PATH, refusal};

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
        refusal(fixture.read_block("nodes/k3").await).0,
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
        .until_entry("node/k1", "the item is published again", |_| true)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_one_job_does_not_affect_other_jobs() {
    let fixture = Fixture::new().await;
    let mut body = mark_body(60_000);
    body["scope"] = json!("JOB:job_1");
    assert_eq!(fixture.put_block("nodes/k1", &body).await.0, 201);
    let published = fixture.published_entries().await;
    let entry = &published["node/k1@job_1"];
    assert_eq!(entry.job, Some("job_1".parse().unwrap()));
    assert_eq!(
        refusal(fixture.read_block("nodes/k1").await).0,
        404,
        "the item is not for the cluster"
    );
    fixture
        .read_block("nodes/k1?scope=JOB:job_1")
        .await
        .unwrap();
    assert_eq!(
        refusal(fixture.read_block("nodes/k1?scope=JOB:job_2").await).0,
        404
    );
    assert_eq!(
        fixture.put_block("nodes/k1", &mark_body(60_000)).await.0,
        201,
        "the items have different keys"
    );
    fixture.unblock("nodes/k1?scope=JOB:job_1").await;
    assert_eq!(fixture.published_entries().await.len(), 1);
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
