//! Automatic blocks and trials (W6), and the brakes that limit them.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{
    BlockEntry, BlockEvent, BlockHistory, ChangeKind, ChangeReason, StrategyView,
};
use hayward_rm_scheduler_api::evidence::What;
use hayward_testkit::until;
use serde_json::json;

use crate::fixture::{Fixture, ROOT, refusal};
use crate::scheduler::{attempt, bad_launch, machine, worked};

fn brief() -> Settings {
    Settings {
        trial_ms: 600_000,
        ..Settings::default()
    }
}

fn duration_ms(entry: &BlockEntry) -> u64 {
    entry.end.unwrap().ms_since(entry.start)
}

/// Three failed launches on the node.
fn three_failures(
    node: &str,
    round: &str,
) -> Vec<(String, hayward_rm_scheduler_api::evidence::FactEntry)> {
    let id = |number: u32| format!("alc_{node}{round}{number}");
    (0..3).map(|number| bad_launch(&id(number), node)).collect()
}

async fn with_strategy(settings: Settings, duration_ms: u64) -> Fixture {
    let fixture = Fixture::of_machines(10, settings).await;
    let parameters = json!({ "n": 3, "duration_ms": duration_ms });
    fixture.choose("start-failures", parameters).await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_node_is_blocked_put_on_trial_blocked_longer_and_then_unblocked() {
    let fixture = with_strategy(brief(), 400).await;
    fixture.scheduler.report(&three_failures("n1", "a")[..2]);
    let seen = until("two are on record", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|seen| seen.scores[0].score == 2)
    })
    .await;
    assert_eq!(
        (seen.scores[0].threshold, seen.scores[0].reached),
        (3, false)
    );
    assert_eq!((seen.cost.attempts_lost, seen.cost.lost_ms), (2, 3_000));
    assert_eq!(seen.cost.quanta_withheld, 0);
    assert!(fixture.published().await.is_empty());

    fixture.scheduler.report(&three_failures("n1", "a")[2..]);
    let blocked = fixture
        .until_entry("node/n1", "it is blocked", |entry| !entry.canary)
        .await;
    assert!(blocked.automatic);
    assert_eq!(blocked.cause, "3 launches failed in 5 min");
    assert_eq!((duration_ms(&blocked), blocked.removal_no), (400, 0));

    let trial = fixture
        .until_entry("node/n1", "on trial", |entry| entry.canary)
        .await;
    assert_eq!(trial.cause, "on trial after: 3 launches failed in 5 min");
    assert_eq!((duration_ms(&trial), trial.removal_no), (600_000, 1));
    let seen = fixture.evidence("n1").await.unwrap();
    assert_eq!(seen.cost.quanta_withheld, 8);
    assert!(seen.item.unwrap().item.canary && seen.past.len() == 1);

    fixture.scheduler.report(&[bad_launch("alc_n1b", "n1")]);
    let again = fixture
        .until_entry("node/n1", "blocked again", |entry| !entry.canary)
        .await;
    assert_eq!(duration_ms(&again), 800, "doubled");
    assert!(
        again.cause.contains("failed on trial: runtime_down"),
        "{}",
        again.cause
    );
    fixture
        .until_entry("node/n1", "on trial again", |entry| entry.canary)
        .await;
    fixture.scheduler.report(&[worked("alc_n1c", "n1")]);
    until("trusted again", async || {
        fixture.published().await.is_empty().then_some(())
    })
    .await;

    let changes = fixture.changes(0).await.changes;
    let answer: Vec<_> = changes.iter().map(|one| (one.kind, one.reason)).collect();
    let over = (ChangeKind::Unblocked, Some(ChangeReason::Expired));
    let blocked = (ChangeKind::Blocked, None);
    let passed = (ChangeKind::TrialEnded, Some(ChangeReason::Passed));
    assert_eq!(answer, [blocked, over, blocked, over, passed]);
    let seen = fixture.evidence("n1").await.unwrap();
    assert_eq!(
        seen.scores[0].score, 0,
        "what led to a block counts no more"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_fact_is_evaluated_once() {
    let mut fixture = with_strategy(brief(), 600_000).await;
    fixture.scheduler.report(&three_failures("n1", "a"));
    let first = fixture
        .until_entry("node/n1", "it is blocked", |_| true)
        .await;
    fixture.unblock("nodes/n1").await;
    // A new term reads everything again: the same three facts.
    fixture.kill_and_restart().await;
    fixture.scheduler.report(&three_failures("n2", "a"));
    fixture
        .until_entry("node/n2", "news is judged", |_| true)
        .await;
    let published = fixture.published().await;
    assert!(
        !published.contains_key("node/n1"),
        "the operator's word stands"
    );
    assert_eq!(first.removal_no, 0);
    fixture.scheduler.report(&three_failures("n1", "b"));
    let second = fixture.until_entry("node/n1", "new facts", |_| true).await;
    assert_eq!(
        (duration_ms(&second), second.removal_no),
        (1_200_000, 1),
        "and it is remembered"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_evaluated_once_the_nodes_are_known() {
    let fixture = Fixture::new().await;
    fixture.choose("start-failures", json!({})).await;
    fixture.scheduler.report(&three_failures("n1", "a"));
    until("they are on record", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|seen| seen.scores[0].score == 3)
    })
    .await;
    let seen = fixture.evidence("n1").await.unwrap();
    assert!(
        seen.withheld.unwrap().contains("not known which pool"),
        "no brake, no block"
    );
    assert!(fixture.published().await.is_empty());
    fixture.scheduler.has_machines(10);
    fixture.until_entry("node/n1", "judged now", |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_blocks_and_trials_stay_within_the_fraction() {
    let fixture = with_strategy(brief(), 300).await;
    for node in ["n1", "n2"] {
        fixture.scheduler.report(&three_failures(node, "a"));
        fixture
            .until_entry(&format!("node/{node}"), "on trial", |entry| entry.canary)
            .await;
    }
    fixture.scheduler.report(&three_failures("n3", "a"));
    let seen = until("held by the brake", async || {
        fixture
            .evidence("n3")
            .await
            .filter(|seen| seen.withheld.is_some())
    })
    .await;
    assert_eq!(
        seen.withheld.unwrap(),
        "pool default has 10 ready nodes, of which 20 % or 2 may be blocked automatically or on \
         trial; 2 are"
    );
    assert!(seen.scores[0].reached);
    assert!(!fixture.published().await.contains_key("node/n3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_prevents_every_automatic_block() {
    let fixture = with_strategy(brief(), 600_000).await;
    let down: Vec<_> = ["n5", "n6", "n7"].map(|name| machine(name, false)).into();
    fixture.scheduler.has(&down);
    fixture.scheduler.has(&[machine("n99", true)]);
    fixture.knows("n99").await;
    fixture.scheduler.report(&three_failures("n1", "a"));
    let seen = until("held by the brake", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|seen| seen.withheld.is_some())
    })
    .await;
    let why = seen.withheld.unwrap();
    assert!(
        why.starts_with("3 nodes of pool default turned bad within five minutes"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_evacuations_are_rate_limited_across_leaders() {
    let mut fixture = Fixture::of_machines(20, brief()).await;
    let classes = json!({ "read_only_fs": {
        "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS", "duration_ms": 600_000, "grace_ms": 0,
    } });
    fixture
        .choose("cause-class", json!({ "classes": classes }))
        .await;
    let bad = |node: &str| {
        attempt(
            &format!("alc_{node}"),
            node,
            What::Failed,
            Some("read_only_fs"),
        )
    };
    fixture.scheduler.report(&[bad("n1"), bad("n2")]);
    let action = hayward_blocklist_api::BlockAction::Evacuate;
    fixture
        .until_entry("node/n1", "evacuated", |entry| entry.action == action)
        .await;
    let second = fixture.until_entry("node/n2", "marked", |_| true).await;
    assert_ne!(second.action, action, "its turn comes in ten seconds");
    // The queued evacuation and its interval survive a restart.
    fixture.kill_and_restart().await;
    assert_ne!(fixture.published().await["node/n2"].action, action);
    fixture
        .until_entry("node/n2", "its turn", |entry| entry.action == action)
        .await;
    let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
    let evacuated = |node: &str| {
        let of_node = history
            .changes
            .iter()
            .filter(|it| it.item.identifier == node);
        let orders = of_node
            .filter(|it| it.item.action == action)
            .map(|it| it.at);
        orders.min().unwrap()
    };
    let pause_ms = evacuated("n2").ms_since(evacuated("n1"));
    // The interval uses a monotonic clock and is reported by the wall clock, each in whole
    // milliseconds.
    assert!(pause_ms >= 9_990, "{pause_ms} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_ends_by_a_success_or_unused_and_survives_a_restart() {
    let mut fixture = with_strategy(brief(), 300).await;
    fixture.scheduler.report(&three_failures("n1", "a"));
    let trial = fixture
        .until_entry("node/n1", "on trial", |entry| entry.canary)
        .await;
    fixture.kill_and_restart().await;
    assert_eq!(fixture.published().await["node/n1"], trial);
    assert!(fixture.read_block("nodes/n1").await.unwrap().item.canary);
    fixture.unblock("nodes/n1").await;
    assert!(fixture.published().await.is_empty());
    assert_eq!(refusal(fixture.read_block("nodes/n1").await).0, 404);

    fixture
        .restart_with(|settings| settings.trial_ms = 200)
        .await;
    fixture
        .choose("start-failures", json!({ "duration_ms": 1 }))
        .await;
    fixture.scheduler.report(&three_failures("n2", "a"));
    let unused = until("the trial to end unused", async || {
        let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
        let change = history.changes.into_iter().next()?;
        (change.event == BlockEvent::TrialUnused).then_some(change)
    })
    .await;
    assert_eq!(unused.item.identifier, "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_by_an_operator_ends_without_a_trial() {
    let fixture = with_strategy(brief(), 300).await;
    let order = json!({ "action": "mark", "cause": "fan", "duration_ms": 300 });
    let (_, added) = fixture.order("nodes/n1", &order).await;
    let path = format!("{ROOT}/changes?after={}&wait_ms=20000", added.revision);
    let _: hayward_blocklist_api::FeedChanges = fixture.viewer().get(&path).await.unwrap();
    assert!(fixture.published().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strategy_that_would_block_most_of_a_pool_is_refused() {
    let fixture = Fixture::of_machines(4, brief()).await;
    let facts: Vec<_> = ["n0", "n1", "n2"]
        .iter()
        .flat_map(|node| three_failures(node, "a"))
        .collect();
    fixture.scheduler.report(&facts);
    until("on record", async || {
        fixture
            .evidence("n2")
            .await
            .filter(|seen| seen.cost.attempts_lost == 3)
    })
    .await;
    let path = format!("{ROOT}/strategy");
    let order = json!({ "name": "start-failures", "parameters": {} });
    let refused = fixture
        .operator()
        .put::<_, StrategyView>(&path, &order)
        .await;
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.status().as_u16(), 422);
    let detail = &problem.detail;
    assert!(
        detail.contains("3 of 4 ready nodes of pool default (n0, n1, n2)"),
        "{detail}"
    );
    let strategy: StrategyView = fixture.viewer().get(&path).await.unwrap();
    assert_eq!(strategy.name, "none", "and nothing changed");
    fixture.choose("start-failures", json!({ "n": 4 })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_the_user_blocks_no_node() {
    let fixture = with_strategy(brief(), 600_000).await;
    fixture.choose("failure-count", json!({})).await;
    let mine = |number: u32| attempt(&format!("alc_{number}"), "n1", What::Failed, None);
    fixture
        .scheduler
        .report(&(0..6).map(mine).collect::<Vec<_>>());
    let seen = until("on record", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|seen| seen.cost.attempts_lost == 6)
    })
    .await;
    assert_eq!(seen.scores[0].score, 0, "six works of one user");
    assert!(seen.facts.iter().all(|fact| !fact.counted));
    let (key, mut other) = mine(7);
    let attempt = other.attempt.as_mut().unwrap();
    attempt.user = hayward_vocabulary::UserName::new("bob").unwrap();
    fixture.scheduler.report(&[(key, other)]);
    fixture
        .until_entry("node/n1", "another user's fails there too", |_| true)
        .await;
}

/// Every item can be removed by a command, even if its target no longer exists.
#[tokio::test(flavor = "multi_thread")]
async fn every_block_can_be_removed_even_if_its_node_is_gone() {
    for fate in ["lost", "forgotten", "back"] {
        let fixture = with_strategy(brief(), 400).await;
        let mark = |action: &str| json!({ "action": action, "cause": "x", "permanent": true });
        let (mut graceful, mut of_job) = (mark("evacuate"), mark("mark"));
        graceful["evacuation"] = json!({ "policy": "GRACEFUL" });
        of_job["scope"] = json!("JOB:job_1");
        for (what, order) in [
            ("nodes/n2", mark("mark")),
            ("nodes/n3", mark("evacuate")),
            ("nodes/n4", graceful),
            ("workers/alc_n2", mark("mark")),
            ("workers/alc_n3", mark("evacuate")),
            ("nodes/n5", of_job),
        ] {
            assert_eq!(fixture.order(what, &order).await.0, 201, "{what}");
        }
        fixture.scheduler.report(&three_failures("n1", "a"));
        fixture
            .until_entry("node/n1", "on trial", |entry| entry.canary)
            .await;
        for number in 1..=5 {
            let name = format!("n{number}");
            if fate == "forgotten" {
                fixture.scheduler.machines.remove(&name);
            } else {
                fixture.scheduler.has(&[machine(&name, false)]);
            }
        }
        fixture.scheduler.machines.taken().await;
        if fate == "back" {
            fixture.scheduler.has_machines(10);
            fixture.scheduler.machines.taken().await;
        }
        for what in [
            "nodes/n1",
            "nodes/n2",
            "nodes/n3",
            "nodes/n4",
            "workers/alc_n2",
            "workers/alc_n3",
            "nodes/n5?scope=JOB:job_1",
        ] {
            fixture.unblock(what).await;
        }
        assert!(fixture.published().await.is_empty(), "{fate}");
    }
}
