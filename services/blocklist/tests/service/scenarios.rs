//! The scenario table of section 18 and the worked examples of section 19, as far as they happen
//! here: what becomes of slots and containers is rm-scheduler's, which goes by what is published.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{
    BlockAction, BlockAnswer, BlockBatchAnswer, BlockKind, BlockOutcome, ChangeKind, ChangeReason,
    EffectiveBlock, EvacuationPolicy, EvacuationProgress, FailureAnswer, FeedChanges, Via,
};
use hayward_service::clock::{Clock as _, SystemClock};
use hayward_testkit::until;
use serde_json::{Value, json};

use crate::scheduler::clearing;
use crate::world::{ROOT, World, refusal};

fn mark(duration_ms: u64) -> Value {
    json!({ "action": "MARK_BLOCKLISTED", "cause": "disk slow", "duration_ms": duration_ms })
}

fn merging(mut order: Value) -> Value {
    order["allow_merge"] = json!(true);
    order
}

fn evacuate() -> Value {
    json!({
        "action": "MARK_BLOCKED_AND_EVACUATE_TASKS", "cause": "ECC errors", "duration_ms": 600_000
    })
}

async fn effective(world: &World, worker: &str) -> EffectiveBlock {
    let path = format!("{ROOT}/workers/{worker}?effective=true");
    world.viewer().get(&path).await.unwrap()
}

async fn announce(world: &World, source: &str, item: Value) -> BlockBatchAnswer {
    let body = json!({ "items": [item], "source": source });
    let path = format!("{ROOT}/items");
    world.owner().post(&path, &body, None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_01_a_new_node_is_marked() {
    let world = World::new().await;
    let (status, answer) = world.order("nodes/k1", &mark(60_000)).await;
    assert_eq!((status, answer.outcome), (201, BlockOutcome::Added));
    let entry = world.published().await.remove("node/k1").unwrap();
    assert_eq!(entry, answer.item.unwrap());
    assert!(!entry.automatic && !entry.canary && entry.job.is_none());
    let seen = world.look("nodes/k1").await.unwrap();
    assert!(seen.left_ms.unwrap() <= 60_000 && seen.in_force.is_none());
    world.scheduler.clears("node/k1", clearing(0, 0, &[]));
    let seen = until("in force", async || {
        world.look("nodes/k1").await.ok()?.in_force
    })
    .await;
    assert_eq!(seen.revision, 77, "D15: absorbed by rm-scheduler");
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_02_the_same_put_again_is_no_event() {
    let world = World::new().await;
    world.order("nodes/k1", &mark(60_000)).await;
    let revision = world.revision();
    let (status, answer) = world.order("nodes/k1", &mark(60_000)).await;
    assert_eq!((status, answer.outcome), (200, BlockOutcome::None));
    assert_eq!(world.revision(), revision, "B2");
    assert!(world.changes(revision).await.changes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_03_another_end_without_merge_is_a_conflict() {
    let world = World::new().await;
    let (_, first) = world.order("nodes/k1", &mark(60_000)).await;
    for order in [mark(90_000), mark(30_000), evacuate()] {
        assert_eq!(world.refused("nodes/k1", &order).await.0, 409, "{order}");
    }
    assert_eq!(
        world.look("nodes/k1").await.unwrap().item,
        first.item.unwrap()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_04_a_later_end_merges_and_is_told() {
    let world = World::new().await;
    let (_, first) = world.order("nodes/k1", &mark(60_000)).await;
    let (status, answer) = world.order("nodes/k1", &merging(mark(90_000))).await;
    assert_eq!((status, answer.outcome), (202, BlockOutcome::Merged));
    assert!(answer.item.unwrap().end > first.item.unwrap().end);
    let news = world.changes(first.revision).await.changes;
    assert_eq!((news.len(), news[0].kind), (1, ChangeKind::Updated));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_05_an_earlier_end_changes_nothing() {
    let world = World::new().await;
    let (_, first) = world.order("nodes/k1", &mark(60_000)).await;
    let (status, answer) = world.order("nodes/k1", &merging(mark(30_000))).await;
    assert_eq!((status, answer.outcome), (200, BlockOutcome::None));
    assert_eq!(answer.item, first.item);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_06_evacuation_upgrades_a_mark_and_runs_now() {
    let world = World::new().await;
    world.order("nodes/k1", &mark(60_000)).await;
    let (status, answer) = world.order("nodes/k1", &merging(evacuate())).await;
    assert_eq!((status, answer.outcome), (202, BlockOutcome::Upgraded));
    let entry = world.published().await.remove("node/k1").unwrap();
    assert_eq!(entry.action, BlockAction::Evacuate);
    assert_eq!(entry.evacuation, EvacuationPolicy::Immediate);
    assert_eq!(entry.cause, "ECC errors, disk slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_07_a_mark_weakens_no_evacuation() {
    let world = World::new().await;
    world.order("nodes/k1", &evacuate()).await;
    let mut same = merging(mark(1));
    same["cause"] = json!("ECC errors");
    assert_eq!(world.order("nodes/k1", &same).await.0, 200);
    let (status, answer) = world.order("nodes/k1", &merging(mark(1))).await;
    assert_eq!(
        (status, answer.outcome),
        (202, BlockOutcome::Merged),
        "its cause is new"
    );
    assert_eq!(answer.item.unwrap().action, BlockAction::Evacuate);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_08_09_10_a_worker_is_blocked_by_itself_or_by_its_node() {
    let world = World::new().await;
    world.order("nodes/k1", &mark(60_000)).await;
    let before = effective(&world, "alc_1").await;
    assert!(
        !before.blocked && before.warnings[0].contains("k1"),
        "unknown, with a warning"
    );
    world
        .scheduler
        .clears("node/k1", clearing(0, 1, &["alc_1"]));
    until("8: blocked via node", async || {
        let seen = effective(&world, "alc_1").await;
        (seen.blocked && seen.via == Some(Via::Node)).then_some(())
    })
    .await;

    assert_eq!(world.order("workers/alc_2", &mark(60_000)).await.0, 201);
    let seen = effective(&world, "alc_2").await;
    assert_eq!((seen.blocked, seen.via), (true, Some(Via::Worker)), "9");
    let neighbour = effective(&world, "alc_3").await;
    assert_eq!((neighbour.blocked, neighbour.via), (false, None), "9");
    assert!(neighbour.warnings.is_empty());

    world.order("workers/alc_1", &mark(60_000)).await;
    world.unblock("nodes/k1").await;
    let seen = effective(&world, "alc_1").await;
    assert_eq!((seen.blocked, seen.via), (true, Some(Via::Worker)), "10");
    let overview = world.overview().await;
    assert_eq!((overview.nodes.len(), overview.workers.len()), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_an_end_unblocks_once() {
    let world = World::new().await;
    let (_, added) = world.order("nodes/k1", &mark(300)).await;
    let path = format!("{ROOT}/changes?after={}&wait_ms=20000", added.revision);
    let news: FeedChanges = world.viewer().get(&path).await.unwrap();
    let told: Vec<_> = news
        .changes
        .iter()
        .map(|one| (one.kind, one.reason))
        .collect();
    assert_eq!(
        told,
        [(ChangeKind::Unblocked, Some(ChangeReason::Expired))],
        "B8"
    );
    assert!(world.published().await.is_empty());
    assert!(world.overview().await.nodes.is_empty());
    assert_eq!(refusal(world.look("nodes/k1").await).0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_12_an_end_in_the_past_has_its_effect_once() {
    let world = World::new().await;
    let end = SystemClock.now().minus_ms(60_000);
    let order = json!({ "action": "MARK_BLOCKLISTED", "cause": "late", "end_timestamp": end });
    let (status, added) = world.order("nodes/k1", &order).await;
    assert_eq!((status, added.outcome), (201, BlockOutcome::Added));
    let path = format!("{ROOT}/changes?after={}&wait_ms=20000", added.revision);
    let news: FeedChanges = world.viewer().get(&path).await.unwrap();
    assert_eq!(news.changes[0].reason, Some(ChangeReason::Expired));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_13_14_an_owner_gets_everything_once_and_then_what_it_asks_for() {
    let world = World::new().await;
    world.order("nodes/k1", &mark(60_000)).await;
    world.order("nodes/k2", &evacuate()).await;
    let owner = world.owner();
    let all: hayward_blocklist_api::BlockOverview = owner.get(ROOT).await.unwrap();
    assert_eq!(all.nodes.len(), 2, "13");
    assert!(
        world.changes(all.version).await.changes.is_empty(),
        "13: and none of them twice"
    );
    // 14: it goes away. Nobody calls it; when it is back it asks for what it missed.
    drop(owner);
    world.order("nodes/k3", &mark(60_000)).await;
    let missed = world.changes(all.version).await;
    let names: Vec<_> = missed
        .changes
        .iter()
        .map(|one| &one.item.identifier)
        .collect();
    assert_eq!(names, ["k3"]);
    assert!(world.changes(missed.version).await.changes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_15_16_17_18_a_mark_stays_published_for_whoever_offers_room() {
    let world = World::new().await;
    world.order("nodes/k1", &mark(60_000)).await;
    world.order("workers/alc_1", &mark(60_000)).await;
    let published = world.published().await;
    let keys: Vec<&String> = published.keys().collect();
    assert_eq!(keys, ["node/k1", "worker/alc_1"]);
    let marks = published
        .values()
        .all(|entry| entry.action == BlockAction::Mark);
    assert!(marks, "B4: what is busy there is not told to go");
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_19_20_a_stale_copy_revives_nothing_and_a_fresh_fact_does() {
    let world = World::new().await;
    let (_, first) = world.order("nodes/k3", &mark(60_000)).await;
    assert_eq!(first.item.unwrap().removal_no, 0);
    world.unblock("nodes/k3").await;
    let copy = json!({
        "type": "NODE", "identifier": "k3", "action": "MARK_BLOCKLISTED", "cause": "disk slow",
        "duration_ms": 60_000, "removal_no": 0,
    });
    let stale = announce(&world, "detector:disks", copy.clone()).await;
    assert_eq!((stale.stale, stale.added), (1, 0), "19");
    assert_eq!(stale.results[0].reason.as_deref(), Some("STALE_COPY"));
    assert_eq!(refusal(world.look("nodes/k3").await).0, 404, "B6");
    let (status, fresh) = world.order("nodes/k3", &mark(60_000)).await;
    assert_eq!((status, fresh.item.unwrap().removal_no), (201, 1), "20");
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_21_23_slow_tasks_and_intended_exits() {
    let world = World::of_machines(10, Settings::default()).await;
    let tell = async |code: &str, intended: bool, at: i64| -> FailureAnswer {
        let body = json!({
            "job_id": "job_7", "cause": "told", "cause_code": code, "intended": intended,
            "locations": [{ "node": "n1", "worker": "alc_1" }],
            "timestamp": SystemClock.now().minus_ms(1_000 - at.unsigned_abs()),
        });
        let path = format!("{ROOT}/failures");
        world.owner().post(&path, &body, None).await.unwrap()
    };
    world.choose("slow-task", json!({ "duration_ms": 0 })).await;
    assert!(tell("slow_task", false, 1).await.items.is_empty(), "21");
    world.choose("cause-class", json!({})).await;
    assert!(tell("disk_full", true, 2).await.items.is_empty(), "23");
    assert!(tell("preemption", false, 3).await.items.is_empty(), "23");
    world.choose("slow-task", json!({})).await;
    let slow = tell("slow_task", false, 4).await.items;
    assert_eq!(slow[0].sources, ["slow-task:job_7".to_owned()].into());
    let longer = until("a repeated report extends the end", async || {
        tell(
            "slow_task",
            false,
            5 + i64::try_from(world.revision()).unwrap(),
        )
        .await
        .items
        .pop()
    })
    .await;
    assert!(longer.end > slow[0].end);
    assert_eq!(longer.removal_no, slow[0].removal_no);
}

fn item(node: &str) -> Value {
    json!({ "type": "NODE", "identifier": node, "action": "mark", "cause": "io wait" })
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_22_the_third_automatic_block_of_ten_is_refused_with_the_numbers() {
    let world = World::of_machines(10, Settings::default()).await;
    announce(&world, "detector:disks", item("n1")).await;
    announce(&world, "detector:disks", item("n2")).await;
    let body = json!({ "items": [item("n1"), item("n3")], "source": "detector:disks" });
    let path = format!("{ROOT}/items");
    let refused = world
        .owner()
        .post::<_, BlockBatchAnswer>(&path, &body, None)
        .await;
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 422);
    assert!(
        problem.detail.contains("10 ready nodes"),
        "{}",
        problem.detail
    );
    assert_eq!(problem.errors[0].pointer, "/items/1");
    assert_eq!(
        world.overview().await.nodes.len(),
        2,
        "B9, and nothing changed"
    );

    let (status, answer) = world.order("nodes/n3", &mark(60_000)).await;
    assert_eq!(status, 201, "a person is exempt");
    assert!(
        answer.warnings[0].contains("3 of 10 ready nodes"),
        "{:?}",
        answer.warnings
    );
    assert_eq!(
        announce(&world, "detector:disks", item("n1")).await.added,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_24_25_one_time_at_most_and_permanent_only_when_asked() {
    let world = World::with(Settings {
        default_duration_ms: 5_000,
        ..Settings::default()
    })
    .await;
    let mut both = mark(1);
    both["end_timestamp"] = json!(SystemClock.now());
    assert_eq!(world.refused("nodes/k1", &both).await.0, 422, "24");
    let negative = json!({ "action": "MARK_BLOCKLISTED", "cause": "x", "duration_ms": -1 });
    let pointers = vec!["/duration_ms".to_owned()];
    assert_eq!(world.refused("nodes/k1", &negative).await, (422, pointers));
    let none = json!({ "action": "MARK_BLOCKLISTED", "cause": "x" });
    let item = world.order("nodes/k1", &none).await.1.item.unwrap();
    assert_eq!(item.end, Some(item.start.plus_ms(5_000)), "25");
    let for_ever = json!({ "action": "MARK_BLOCKLISTED", "cause": "x", "permanent": true });
    let item = world.order("nodes/k2", &for_ever).await.1.item.unwrap();
    assert_eq!(item.end, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_26_a_restart_loses_nothing() {
    let mut world = World::new().await;
    let mut graceful = evacuate();
    graceful["evacuation"] = json!({ "policy": "GRACEFUL", "grace_ms": 90_000 });
    graceful["scope"] = json!("JOB:job_1");
    world.order("nodes/k1", &graceful).await;
    world.order("nodes/k2", &mark(60_000)).await;
    world.unblock("nodes/k2").await;
    world.choose("flapping", json!({ "n": 7 })).await;
    let (before, overview) = (world.published().await, world.overview().await);
    world.kill_and_restart().await;
    assert_eq!(world.published().await, before);
    let shown: Vec<_> = world
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
    let (_, again) = world.order("nodes/k2", &mark(60_000)).await;
    assert_eq!(again.item.unwrap().removal_no, 1);
    let path = format!("{ROOT}/strategy");
    let strategy: hayward_blocklist_api::StrategyView = world.viewer().get(&path).await.unwrap();
    assert_eq!(
        (strategy.name.as_str(), &strategy.parameters["n"]),
        ("flapping", &json!(7))
    );
    assert_eq!(strategy.by.as_deref(), Some("ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_27_switched_off_is_the_empty_list() {
    let mut world = World::new().await;
    world.order("nodes/k1", &mark(600_000)).await;
    world
        .restart_with(|settings| settings.enabled = false)
        .await;
    assert!(
        until("B10: nothing is published", async || {
            world.published().await.is_empty().then_some(true)
        })
        .await
    );
    let overview = world.overview().await;
    assert!(overview.nodes.is_empty());
    let operator = world.operator();
    let path = format!("{ROOT}/nodes/k2");
    let refused = operator.put::<_, BlockAnswer>(&path, &mark(1)).await;
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 409);
    assert!(problem.detail.contains("blocklist_disabled"));
    assert!(world.changes(overview.version).await.changes.is_empty());
    world.restart_with(|settings| settings.enabled = true).await;
    world
        .until_entry("node/k1", "it is there again", |_| true)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_28_an_item_of_one_job_is_no_other_jobs() {
    let world = World::new().await;
    let mut order = mark(60_000);
    order["scope"] = json!("JOB:job_1");
    assert_eq!(world.order("nodes/k1", &order).await.0, 201);
    let published = world.published().await;
    let entry = &published["node/k1@job_1"];
    assert_eq!(entry.job, Some("job_1".parse().unwrap()));
    assert_eq!(
        refusal(world.look("nodes/k1").await).0,
        404,
        "not for the cluster"
    );
    world.look("nodes/k1?scope=JOB:job_1").await.unwrap();
    assert_eq!(refusal(world.look("nodes/k1?scope=JOB:job_2").await).0, 404);
    assert_eq!(
        world.order("nodes/k1", &mark(60_000)).await.0,
        201,
        "two keys"
    );
    world.unblock("nodes/k1?scope=JOB:job_1").await;
    assert_eq!(world.published().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_29_30_progress_of_an_evacuation_and_its_end() {
    let world = World::new().await;
    world.order("nodes/k1", &evacuate()).await;
    let path = format!("{ROOT}/nodes/k1/evacuation");
    let progress = async || world.viewer().get::<EvacuationProgress>(&path).await;
    assert_eq!(
        progress().await.unwrap().in_force,
        None,
        "nobody has taken it up"
    );
    world
        .scheduler
        .clears("node/k1", clearing(0, 3, &["alc_2", "alc_3"]));
    let seen = until("progress", async || {
        progress().await.ok().filter(|seen| seen.total == 3)
    })
    .await;
    assert_eq!((seen.moved, seen.failed, seen.remaining), (1, 0, 2), "29");
    let overview: hayward_blocklist_api::BlockOverview = world
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

    world.unblock("nodes/k1").await;
    assert!(
        world.published().await.is_empty(),
        "30: nothing tells the scheduler to go on"
    );
    assert_eq!(refusal(progress().await).0, 404);
    world.order("nodes/k1", &evacuate()).await;
    let anew = progress().await.unwrap();
    assert_eq!(
        (anew.total, anew.in_force),
        (0, None),
        "B5: that was for the number before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn example_1_two_owners_one_node() {
    let world = World::with(Settings {
        max_blocked_percent: 100,
        pool_floor: 0,
        ..Settings::default()
    })
    .await;
    world.scheduler.machines.put(&[
        crate::scheduler::machine("k3", true),
        crate::scheduler::machine("k4", true),
    ]);
    world.knows("k4").await;
    let item = |cause: &str, duration_ms: u64, removal_no: Option<u64>| {
        json!({
            "type": "NODE", "identifier": "k3", "action": "MARK_BLOCKLISTED", "cause": cause,
            "duration_ms": duration_ms, "removal_no": removal_no,
        })
    };
    let added = announce(&world, "detector:p", item("disk slow", 600_000, None)).await;
    assert_eq!(added.added, 1);
    let merged = announce(&world, "detector:q", item("io wait", 1_500_000, None)).await;
    assert_eq!(merged.merged, 1);
    let entry = merged.results[0].item.clone().unwrap();
    assert_eq!(entry.cause, "disk slow, io wait");
    let copy = announce(&world, "detector:p", item("disk slow", 300_000, Some(0))).await;
    assert_eq!(copy.unchanged, 1);
    world.unblock("nodes/k3").await;
    let news = world.changes(merged.revision).await.changes;
    assert_eq!(news.len(), 1, "one change");
    assert_eq!(news[0].reason, Some(ChangeReason::Removed));
    let stale = announce(&world, "detector:q", item("io wait", 1_500_000, Some(0))).await;
    assert_eq!(stale.stale, 1);
    let fresh = announce(&world, "detector:q", item("io wait", 1_500_000, None)).await;
    assert_eq!(fresh.added, 1);
    assert_eq!(fresh.results[0].item.as_ref().unwrap().removal_no, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn example_2_an_upgrade_keeps_the_later_end() {
    let world = World::new().await;
    let (_, marked) = world.order("nodes/k9", &mark(14_400_000)).await;
    let end = marked.item.unwrap().end;
    let (status, upgraded) = world.order("nodes/k9", &merging(evacuate())).await;
    assert_eq!((status, upgraded.outcome), (202, BlockOutcome::Upgraded));
    assert_eq!(upgraded.item.unwrap().end, end);
    world.scheduler.clears("node/k9", clearing(0, 3, &[]));
    let seen = until("the last one is gone", async || {
        let seen = world.look("nodes/k9").await.ok()?;
        seen.progress
            .clone()
            .filter(|progress| progress.total == 3)
            .map(|_| seen)
    })
    .await;
    assert_eq!(seen.progress.unwrap().remaining, 0);
    assert_eq!(seen.item.end, end, "and it stays blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn example_3_a_mark_is_a_filter_and_tells_nothing_to_go() {
    let world = World::new().await;
    world.order("nodes/h2", &mark(60_000)).await;
    let entry = world.published().await.remove("node/h2").unwrap();
    assert_eq!(
        (entry.kind, entry.action),
        (BlockKind::Node, BlockAction::Mark)
    );
    let path = format!("{ROOT}/nodes/h2/evacuation");
    let none = world.viewer().get::<EvacuationProgress>(&path).await;
    assert_eq!(refusal(none).0, 404);
}
