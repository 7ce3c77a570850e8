//! Scenarios of blocked workers, and of evacuations and their progress. The fake scheduler reports
//! which workers are on a node.

use hayward_blocklist_api::{BlockAction, BlockKind, BlockOverview, BlockedBy, EvacuationProgress};
use hayward_testkit::until;

use super::{evacuate_body, mark_body, read_effective_block};
use crate::fake_scheduler::evacuation_progress;
use crate::fixture::{Fixture, ROOT_PATH, refusal_status};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_blocked_by_its_own_item_or_by_its_node() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    let unreported = read_effective_block(&fixture, "alc_1").await;
    assert!(
        !unreported.blocked && unreported.warnings[0].contains("k1"),
        "the workers of the node are not reported yet"
    );
    fixture
        .scheduler
        .publish_evacuation("node/k1", &evacuation_progress(0, 1, &["alc_1"]));
    until(
        "the worker is blocked by its node (scenario 8)",
        async || {
            let view = read_effective_block(&fixture, "alc_1").await;
            (view.blocked && view.via == Some(BlockedBy::Node)).then_some(())
        },
    )
    .await;

    assert_eq!(
        fixture
            .put_block_status("workers/alc_2", &mark_body(60_000))
            .await,
        201
    );
    let view = read_effective_block(&fixture, "alc_2").await;
    assert_eq!(
        (view.blocked, view.via),
        (true, Some(BlockedBy::Worker)),
        "the worker is blocked by its own item (scenario 9)"
    );
    let other_worker = read_effective_block(&fixture, "alc_3").await;
    assert_eq!(
        (other_worker.blocked, other_worker.via),
        (false, None),
        "another worker is not blocked (scenario 9)"
    );
    assert!(other_worker.warnings.is_empty());

    fixture.put_block("workers/alc_1", &mark_body(60_000)).await;
    fixture.unblock("nodes/k1").await;
    let view = read_effective_block(&fixture, "alc_1").await;
    assert_eq!(
        (view.blocked, view.via),
        (true, Some(BlockedBy::Worker)),
        "the item of the worker outlasts that of its node (scenario 10)"
    );
    let overview = fixture.overview().await;
    assert_eq!((overview.nodes.len(), overview.workers.len()), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_stays_published_for_every_follower() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &mark_body(60_000)).await;
    fixture.put_block("workers/alc_1", &mark_body(60_000)).await;
    let published = fixture.published_entries().await;
    let keys: Vec<&String> = published.keys().collect();
    assert_eq!(keys, ["node/k1", "worker/alc_1"]);
    let marks = published
        .values()
        .all(|entry| entry.action == BlockAction::Mark);
    assert!(marks, "running work is not ordered to leave (BL-4)");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evacuation_shows_its_progress_and_its_end() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/k1", &evacuate_body()).await;
    let path = format!("{ROOT_PATH}/nodes/k1/evacuation");
    let read_progress = async || fixture.viewer().get::<EvacuationProgress>(&path).await;
    assert_eq!(
        read_progress().await.unwrap().in_force,
        None,
        "the scheduler has not applied the item"
    );
    fixture
        .scheduler
        .publish_evacuation("node/k1", &evacuation_progress(0, 3, &["alc_2", "alc_3"]));
    let view = until("the progress is reported", async || {
        read_progress().await.ok().filter(|view| view.total == 3)
    })
    .await;
    assert_eq!(
        (view.moved, view.failed, view.remaining),
        (1, 0, 2),
        "the progress that the scheduler reported (scenario 29)"
    );
    let overview: BlockOverview = fixture
        .viewer()
        .get(&format!("{ROOT_PATH}?include=workers"))
        .await
        .unwrap();
    let view = &overview.nodes[0];
    assert_eq!(
        view.progress.as_ref().map(|progress| progress.remaining),
        Some(2)
    );
    assert_eq!(
        view.workers.as_deref(),
        Some(&["alc_2".to_owned(), "alc_3".to_owned()][..])
    );

    fixture.unblock("nodes/k1").await;
    assert!(
        fixture.published_entries().await.is_empty(),
        "without the entry the scheduler stops the evacuation (scenario 30)"
    );
    assert_eq!(refusal_status(read_progress().await), 404);
    fixture.put_block("nodes/k1", &evacuate_body()).await;
    let second_progress = read_progress().await.unwrap();
    assert_eq!(
        (second_progress.total, second_progress.in_force),
        (0, None),
        "the reported progress is of the earlier item (BL-5)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_only_filters_new_work() {
    let fixture = Fixture::new().await;
    fixture.put_block("nodes/h2", &mark_body(60_000)).await;
    let entry = fixture.published_entries().await.remove("node/h2").unwrap();
    assert_eq!(
        (entry.kind, entry.action),
        (BlockKind::Node, BlockAction::Mark)
    );
    let path = format!("{ROOT_PATH}/nodes/h2/evacuation");
    let no_evacuation = fixture.viewer().get::<EvacuationProgress>(&path).await;
    assert_eq!(refusal_status(no_evacuation), 404);
}
