//! Scenarios of adding blocks: each outcome, the entry that is published, and blocks for one job.

use hayward_blocklist_api::{BlockAction, BlockOutcome, ChangeKind, EvacuationPolicy};
use hayward_testkit::until;
use serde_json::json;

use super::{evacuate_body, mark_body, with_merge};
use crate::fake_scheduler::evacuation_progress;
use crate::fixture::{Fixture, refusal_status};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_is_marked() {
    let fixture = Fixture::new().await;
    let (status, result) = fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    assert_eq!((status, result.outcome), (201, BlockOutcome::Added));
    let entry = fixture.published_entries().await.remove("node/k1").unwrap();
    assert_eq!(entry, result.item.unwrap());
    assert!(!entry.automatic && !entry.canary && entry.job.is_none());
    let view = fixture.read_block("nodes/k1").await.unwrap();
    assert!(view.left_ms.unwrap() <= 60_000 && view.in_force.is_none());
    fixture
        .scheduler
        .publish_evacuation("node/k1", &evacuation_progress(0, 0, &[]));
    let view = until("the item is in force", async || {
        fixture.read_block("nodes/k1").await.ok()?.in_force
    })
    .await;
    assert_eq!(
        view.revision, 77,
        "the revision at which rm-scheduler applied the item (D15)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_put_changes_nothing() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    let revision = fixture.revision();
    let (status, result) = fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    assert_eq!((status, result.outcome), (200, BlockOutcome::None));
    assert_eq!(
        fixture.revision(),
        revision,
        "an unchanged item is not written (BL-2)"
    );
    assert!(fixture.changes(revision).await.changes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_different_end_without_merge_is_a_conflict() {
    let fixture = Fixture::new().await;
    let (_, first) = fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    for body in [mark_body(90_000), mark_body(30_000), evacuate_body()] {
        assert_eq!(
            fixture.expect_refusal_status("nodes/k1", &body).await,
            409,
            "{body}"
        );
    }
    assert_eq!(
        fixture.read_block("nodes/k1").await.unwrap().item,
        first.item.unwrap()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_end_merges_and_is_published() {
    let fixture = Fixture::new().await;
    let (_, first) = fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    let (status, result) = fixture
        .put_block("nodes/k1", &with_merge(mark_body(90_000)))
        .await;
    assert_eq!((status, result.outcome), (202, BlockOutcome::Merged));
    assert!(result.item.unwrap().end > first.item.unwrap().end);
    let changes = fixture.changes(first.revision).await.changes;
    assert_eq!((changes.len(), changes[0].kind), (1, ChangeKind::Updated));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_end_changes_nothing() {
    let fixture = Fixture::new().await;
    let (_, first) = fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    let (status, result) = fixture
        .put_block("nodes/k1", &with_merge(mark_body(30_000)))
        .await;
    assert_eq!((status, result.outcome), (200, BlockOutcome::None));
    assert_eq!(result.item, first.item);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evacuation_upgrades_a_mark_at_once() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    let (status, result) = fixture
        .put_block("nodes/k1", &with_merge(evacuate_body()))
        .await;
    assert_eq!((status, result.outcome), (202, BlockOutcome::Upgraded));
    let entry = fixture.published_entries().await.remove("node/k1").unwrap();
    assert_eq!(entry.action, BlockAction::Evacuate);
    assert_eq!(entry.evacuation, EvacuationPolicy::Immediate);
    assert_eq!(entry.cause, "ECC errors, disk slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_does_not_weaken_an_evacuation() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &evacuate_body()).await;
    let mut same = with_merge(mark_body(1));
    same["cause"] = json!("ECC errors");
    assert_eq!(fixture.put_block_status("nodes/k1", &same).await, 200);
    let (status, result) = fixture
        .put_block("nodes/k1", &with_merge(mark_body(1)))
        .await;
    assert_eq!(
        (status, result.outcome),
        (202, BlockOutcome::Merged),
        "the cause is new"
    );
    assert_eq!(result.item.unwrap().action, BlockAction::Evacuate);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_keeps_the_later_end() {
    let fixture = Fixture::new().await;
    let (_, marked) = fixture.put_block("nodes/k9", &mark_body(14_400_000)).await;
    let end = marked.item.unwrap().end;
    let (status, upgraded) = fixture
        .put_block("nodes/k9", &with_merge(evacuate_body()))
        .await;
    assert_eq!((status, upgraded.outcome), (202, BlockOutcome::Upgraded));
    assert_eq!(upgraded.item.unwrap().end, end);
    fixture
        .scheduler
        .publish_evacuation("node/k9", &evacuation_progress(0, 3, &[]));
    let view = until("the evacuation is complete", async || {
        let view = fixture.read_block("nodes/k9").await.ok()?;
        view.progress
            .clone()
            .filter(|progress| progress.total == 3)
            .map(|_| view)
    })
    .await;
    assert_eq!(view.progress.unwrap().remaining, 0);
    assert_eq!(view.item.end, end, "the node remains blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_of_one_job_does_not_affect_other_jobs() {
    let fixture = Fixture::new().await;
    let mut body = mark_body(60_000);
    body["scope"] = json!("JOB:job_1");
    assert_eq!(fixture.put_block_status("nodes/k1", &body).await, 201);
    let published = fixture.published_entries().await;
    let entry = &published["node/k1@job_1"];
    assert_eq!(entry.job, Some("job_1".parse().unwrap()));
    assert_eq!(
        refusal_status(fixture.read_block("nodes/k1").await),
        404,
        "the item is not for the cluster"
    );
    fixture
        .read_block("nodes/k1?scope=JOB:job_1")
        .await
        .unwrap();
    assert_eq!(
        refusal_status(fixture.read_block("nodes/k1?scope=JOB:job_2").await),
        404
    );
    assert_eq!(
        fixture
            .put_block_status("nodes/k1", &mark_body(60_000))
            .await,
        201,
        "the items have different keys"
    );
    fixture.unblock("nodes/k1?scope=JOB:job_1").await;
    assert_eq!(fixture.published_entries().await.len(), 1);
}
