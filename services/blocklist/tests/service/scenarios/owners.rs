//! Owners, copies and scopes; restarts and disabling.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{BlockAnswer, BlockOverview, ChangeReason, StrategyView};
use hayward_testkit::until;
use serde_json::json;

use super::{announce, evacuate, mark};
use crate::fixture::{Fixture, ROOT, refusal};
use crate::scheduler::machine;

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_reads_the_list_once_and_then_its_changes() {
    let fixture = Fixture::new().await;
    fixture.order("nodes/k1", &mark(60_000)).await;
    fixture.order("nodes/k2", &evacuate()).await;
    let owner = fixture.owner();
    let all: BlockOverview = owner.get(ROOT).await.unwrap();
    assert_eq!(all.nodes.len(), 2, "13");
    assert!(
        fixture.changes(all.version).await.changes.is_empty(),
        "13: and none of them twice"
    );
    // The owner is offline for a while. When it is back it requests the changes it missed.
    drop(owner);
    fixture.order("nodes/k3", &mark(60_000)).await;
    let missed = fixture.changes(all.version).await;
    let names: Vec<_> = missed
        .changes
        .iter()
        .map(|one| &one.item.identifier)
        .collect();
    assert_eq!(names, ["k3"]);
    assert!(fixture.changes(missed.version).await.changes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_copy_revives_nothing_and_a_new_item_does() {
    let fixture = Fixture::new().await;
    let (_, first) = fixture.order("nodes/k3", &mark(60_000)).await;
    assert_eq!(first.item.unwrap().removal_no, 0);
    fixture.unblock("nodes/k3").await;
    let copy = json!({
        "type": "NODE", "identifier": "k3", "action": "MARK_BLOCKLISTED", "cause": "disk slow",
        "duration_ms": 60_000, "removal_no": 0,
    });
    let stale = announce(&fixture, "detector:disks", copy.clone()).await;
    assert_eq!((stale.stale, stale.added), (1, 0), "19");
    assert_eq!(stale.results[0].reason.as_deref(), Some("STALE_COPY"));
    assert_eq!(refusal(fixture.read_block("nodes/k3").await).0, 404, "BL-6");
    let (status, fresh) = fixture.order("nodes/k3", &mark(60_000)).await;
    assert_eq!((status, fresh.item.unwrap().removal_no), (201, 1), "20");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_nothing() {
    let mut fixture = Fixture::new().await;
    let mut graceful = evacuate();
    graceful["evacuation"] = json!({ "policy": "GRACEFUL", "grace_ms": 90_000 });
    graceful["scope"] = json!("JOB:job_1");
    fixture.order("nodes/k1", &graceful).await;
    fixture.order("nodes/k2", &mark(60_000)).await;
    fixture.unblock("nodes/k2").await;
    fixture.choose("flapping", json!({ "n": 7 })).await;
    let (before, overview) = (fixture.published().await, fixture.overview().await);
    fixture.kill_and_restart().await;
    assert_eq!(fixture.published().await, before);
    let shown: Vec<_> = fixture
        .overview()
        .await
        .nodes
        .into_iter()
        .map(|one| one.item)
        .collect();
    assert_eq!(
        shown,
        overview
            .nodes
            .into_iter()
            .map(|one| one.item)
            .collect::<Vec<_>>()
    );
    let (_, again) = fixture.order("nodes/k2", &mark(60_000)).await;
    assert_eq!(again.item.unwrap().removal_no, 1);
    let path = format!("{ROOT}/strategy");
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
    fixture.order("nodes/k1", &mark(600_000)).await;
    fixture
        .restart_with(|settings| settings.enabled = false)
        .await;
    assert!(
        until("BL-10: nothing is published", async || {
            fixture.published().await.is_empty().then_some(true)
        })
        .await
    );
    let overview = fixture.overview().await;
    assert!(overview.nodes.is_empty());
    let operator = fixture.operator();
    let path = format!("{ROOT}/nodes/k2");
    let refused = operator.put::<_, BlockAnswer>(&path, &mark(1)).await;
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 409);
    assert_eq!(problem.code.as_str(), "blocklist_disabled");
    assert!(fixture.changes(overview.version).await.changes.is_empty());
    fixture
        .restart_with(|settings| settings.enabled = true)
        .await;
    fixture
        .until_entry("node/k1", "it is there again", |_| true)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_one_job_does_not_affect_other_jobs() {
    let fixture = Fixture::new().await;
    let mut order = mark(60_000);
    order["scope"] = json!("JOB:job_1");
    assert_eq!(fixture.order("nodes/k1", &order).await.0, 201);
    let published = fixture.published().await;
    let entry = &published["node/k1@job_1"];
    assert_eq!(entry.job, Some("job_1".parse().unwrap()));
    assert_eq!(
        refusal(fixture.read_block("nodes/k1").await).0,
        404,
        "not for the cluster"
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
        fixture.order("nodes/k1", &mark(60_000)).await.0,
        201,
        "two keys"
    );
    fixture.unblock("nodes/k1?scope=JOB:job_1").await;
    assert_eq!(fixture.published().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_two_owners_merge_on_one_node() {
    let fixture = Fixture::with(Settings {
        max_blocked_percent: 100,
        pool_floor: 0,
        ..Settings::default()
    })
    .await;
    fixture
        .scheduler
        .has(&[machine("k3", true), machine("k4", true)]);
    fixture.knows("k4").await;
    let item = |cause: &str, duration_ms: u64, removal_no: Option<u64>| {
        json!({
            "type": "NODE", "identifier": "k3", "action": "MARK_BLOCKLISTED", "cause": cause,
            "duration_ms": duration_ms, "removal_no": removal_no,
        })
    };
    let added = announce(&fixture, "detector:p", item("disk slow", 600_000, None)).await;
    assert_eq!(added.added, 1);
    let merged = announce(&fixture, "detector:q", item("io wait", 1_500_000, None)).await;
    assert_eq!(merged.merged, 1);
    let entry = merged.results[0].item.clone().unwrap();
    assert_eq!(entry.cause, "disk slow, io wait");
    let copy = announce(&fixture, "detector:p", item("disk slow", 300_000, Some(0))).await;
    assert_eq!(copy.unchanged, 1);
    fixture.unblock("nodes/k3").await;
    let news = fixture.changes(merged.revision).await.changes;
    assert_eq!(news.len(), 1, "one change");
    assert_eq!(news[0].reason, Some(ChangeReason::Removed));
    let stale = announce(&fixture, "detector:q", item("io wait", 1_500_000, Some(0))).await;
    assert_eq!(stale.stale, 1);
    let fresh = announce(&fixture, "detector:q", item("io wait", 1_500_000, None)).await;
    assert_eq!(fresh.added, 1);
    assert_eq!(fresh.results[0].item.as_ref().unwrap().removal_no, 1);
}
