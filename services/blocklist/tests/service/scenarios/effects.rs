//! Reach of items, and the evacuation of work.

use hayward_blocklist_api::{BlockAction, BlockKind, BlockOverview, EvacuationProgress, Via};
use hayward_testkit::until;

use super::{effective, evacuate, mark};
use crate::fixture::{Fixture, ROOT, refusal};
use crate::scheduler::clearing;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_blocked_by_its_own_item_or_by_its_node() {
    let fixture = Fixture::new().await;
    fixture.order("nodes/k1", &mark(60_000)).await;
    let before = effective(&fixture, "alc_1").await;
    assert!(
        !before.blocked && before.warnings[0].contains("k1"),
        "unknown, with a warning"
    );
    fixture
        .scheduler
        .clears("node/k1", &clearing(0, 1, &["alc_1"]));
    until("8: blocked via node", async || {
        let seen = effective(&fixture, "alc_1").await;
        (seen.blocked && seen.via == Some(Via::Node)).then_some(())
    })
    .await;

    assert_eq!(fixture.order("workers/alc_2", &mark(60_000)).await.0, 201);
    let seen = effective(&fixture, "alc_2").await;
    assert_eq!((seen.blocked, seen.via), (true, Some(Via::Worker)), "9");
    let neighbour = effective(&fixture, "alc_3").await;
    assert_eq!((neighbour.blocked, neighbour.via), (false, None), "9");
    assert!(neighbour.warnings.is_empty());

    fixture.order("workers/alc_1", &mark(60_000)).await;
    fixture.unblock("nodes/k1").await;
    let seen = effective(&fixture, "alc_1").await;
    assert_eq!((seen.blocked, seen.via), (true, Some(Via::Worker)), "10");
    let overview = fixture.overview().await;
    assert_eq!((overview.nodes.len(), overview.workers.len()), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_stays_published_for_every_follower() {
    let fixture = Fixture::new().await;
    fixture.order("nodes/k1", &mark(60_000)).await;
    fixture.order("workers/alc_1", &mark(60_000)).await;
    let published = fixture.published().await;
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
    fixture.order("nodes/k1", &evacuate()).await;
    let path = format!("{ROOT}/nodes/k1/evacuation");
    let progress = async || fixture.viewer().get::<EvacuationProgress>(&path).await;
    assert_eq!(
        progress().await.unwrap().in_force,
        None,
        "the scheduler has not applied it"
    );
    fixture
        .scheduler
        .clears("node/k1", &clearing(0, 3, &["alc_2", "alc_3"]));
    let seen = until("progress", async || {
        progress().await.ok().filter(|seen| seen.total == 3)
    })
    .await;
    assert_eq!((seen.moved, seen.failed, seen.remaining), (1, 0, 2), "29");
    let overview: BlockOverview = fixture
        .viewer()
        .get(&format!("{ROOT}?include=workers"))
        .await
        .unwrap();
    let shown = &overview.nodes[0];
    assert_eq!(
        shown.progress.as_ref().map(|progress| progress.remaining),
        Some(2)
    );
    assert_eq!(
        shown.workers.as_deref(),
        Some(&["alc_2".to_owned(), "alc_3".to_owned()][..])
    );

    fixture.unblock("nodes/k1").await;
    assert!(
        fixture.published().await.is_empty(),
        "30: nothing tells the scheduler to go on"
    );
    assert_eq!(refusal(progress().await).0, 404);
    fixture.order("nodes/k1", &evacuate()).await;
    let again = progress().await.unwrap();
    assert_eq!(
        (again.total, again.in_force),
        (0, None),
        "BL-5: that was for the number before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_only_filters_new_work() {
    let fixture = Fixture::new().await;
    fixture.order("nodes/h2", &mark(60_000)).await;
    let entry = fixture.published().await.remove("node/h2").unwrap();
    assert_eq!(
        (entry.kind, entry.action),
        (BlockKind::Node, BlockAction::Mark)
    );
    let path = format!("{ROOT}/nodes/h2/evacuation");
    let none = fixture.viewer().get::<EvacuationProgress>(&path).await;
    assert_eq!(refusal(none).0, 404);
}
