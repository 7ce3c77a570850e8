//! Tests of automatic blocks and trials (W6), and of the brakes that limit them. Most tests start a
//! blocklist with ten ready nodes in one pool and the strategy `start-failures`, which blocks a
//! node after three failed launches. The fake scheduler then publishes facts about nodes.
//!
//! A strategy with one rule has one score per node, which is `evidence.scores[0]`.

use hayward_blocklist::Settings;
use hayward_blocklist_api::{
    BlockEntry, BlockEvent, BlockHistory, ChangeKind, ChangeReason, StrategyView,
};
use hayward_rm_scheduler_api::node_publications::{FactEntry, FactKind};
use hayward_testkit::until;
use serde_json::json;

use crate::fake_scheduler::{attempt_fact, failed_launch, node_entry, succeeded_attempt};
use crate::fixture::{Fixture, ROOT_PATH, refusal_status};

/// Returns settings with trials of ten minutes, so that no unused trial ends during a test.
fn settings() -> Settings {
    Settings {
        trial_ms: 600_000,
        ..Settings::default()
    }
}

fn duration_ms(entry: &BlockEntry) -> u64 {
    entry.end.unwrap().ms_since(entry.start)
}

/// Creates three failed launches on a node. The suffix makes the ids of the attempts distinct.
fn three_failed_launches(node: &str, suffix: &str) -> Vec<(String, FactEntry)> {
    let id = |number: u32| format!("alc_{node}{suffix}{number}");
    (0..3)
        .map(|number| failed_launch(&id(number), node))
        .collect()
}

/// Starts a service with ten nodes and the strategy `start-failures`.
async fn fixture_with_strategy(settings: Settings, duration_ms: u64) -> Fixture {
    let fixture = Fixture::with_nodes(10, settings).await;
    let parameters = json!({ "n": 3, "duration_ms": duration_ms });
    fixture.set_strategy("start-failures", parameters).await;
    fixture
}

/// Asserts that the history has two blocks, each followed by a trial, and that the second trial
/// passed.
async fn assert_blocked_twice_and_passed(fixture: &Fixture) {
    let changes = fixture.changes(0).await.changes;
    let kinds: Vec<_> = changes
        .iter()
        .map(|change| (change.kind, change.reason))
        .collect();
    let expired = (ChangeKind::Unblocked, Some(ChangeReason::Expired));
    let blocked = (ChangeKind::Blocked, None);
    let passed = (ChangeKind::TrialEnded, Some(ChangeReason::Passed));
    assert_eq!(kinds, [blocked, expired, blocked, expired, passed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_node_is_blocked_put_on_trial_blocked_longer_and_then_unblocked() {
    let fixture = fixture_with_strategy(settings(), 400).await;
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n1", "a")[..2]);
    let evidence = until("two failures are recorded", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|evidence| evidence.scores[0].score == 2)
    })
    .await;
    assert_eq!(
        (evidence.scores[0].threshold, evidence.scores[0].reached),
        (3, false)
    );
    assert_eq!(
        (evidence.cost.attempts_lost, evidence.cost.lost_ms),
        (2, 3_000)
    );
    assert_eq!(evidence.cost.quanta_withheld, 0);
    assert!(fixture.published_entries().await.is_empty());

    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n1", "a")[2..]);
    let blocked = fixture
        .wait_for_entry("node/n1", "the node is blocked", |entry| !entry.canary)
        .await;
    assert!(blocked.automatic);
    assert_eq!(blocked.cause, "3 launches failed in 5 min");
    assert_eq!((duration_ms(&blocked), blocked.removal_no), (400, 0));

    let trial = fixture
        .wait_for_entry("node/n1", "the node is on trial", |entry| entry.canary)
        .await;
    assert_eq!(trial.cause, "on trial after: 3 launches failed in 5 min");
    assert_eq!((duration_ms(&trial), trial.removal_no), (600_000, 1));
    let evidence = fixture.evidence("n1").await.unwrap();
    assert_eq!(evidence.cost.quanta_withheld, 8);
    assert!(evidence.item.unwrap().item.canary && evidence.past.len() == 1);

    fixture
        .scheduler
        .publish_facts(&[failed_launch("alc_n1b", "n1")]);
    let second_block = fixture
        .wait_for_entry("node/n1", "the node is blocked again", |entry| {
            !entry.canary
        })
        .await;
    assert_eq!(duration_ms(&second_block), 800, "the duration is doubled");
    assert!(
        second_block.cause.contains("failed on trial: runtime_down"),
        "{}",
        second_block.cause
    );
    fixture
        .wait_for_entry("node/n1", "the node is on trial again", |entry| {
            entry.canary
        })
        .await;
    fixture
        .scheduler
        .publish_facts(&[succeeded_attempt("alc_n1c", "n1")]);
    until("the trial has passed", async || {
        fixture.published_entries().await.is_empty().then_some(())
    })
    .await;

    assert_blocked_twice_and_passed(&fixture).await;
    let evidence = fixture.evidence("n1").await.unwrap();
    assert_eq!(
        evidence.scores[0].score, 0,
        "facts that led to a block no longer count"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_fact_is_evaluated_once() {
    let mut fixture = fixture_with_strategy(settings(), 600_000).await;
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n1", "a"));
    let first_block = fixture
        .wait_for_entry("node/n1", "the node is blocked", |_| true)
        .await;
    fixture.unblock("nodes/n1").await;
    // The new term receives the same three facts again.
    fixture.crash_and_restart().await;
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n2", "a"));
    fixture
        .wait_for_entry("node/n2", "new facts are evaluated", |_| true)
        .await;
    let published = fixture.published_entries().await;
    assert!(
        !published.contains_key("node/n1"),
        "the removal by the operator remains"
    );
    assert_eq!(first_block.removal_no, 0);
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n1", "b"));
    let second = fixture
        .wait_for_entry("node/n1", "new facts are evaluated", |_| true)
        .await;
    assert_eq!(
        (duration_ms(&second), second.removal_no),
        (1_200_000, 1),
        "the first block is remembered"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_evaluated_once_the_nodes_are_known() {
    let fixture = Fixture::new().await;
    fixture.set_strategy("start-failures", json!({})).await;
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n1", "a"));
    until("the failures are recorded", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|evidence| evidence.scores[0].score == 3)
    })
    .await;
    let evidence = fixture.evidence("n1").await.unwrap();
    assert!(
        evidence
            .withheld
            .unwrap()
            .contains("the pool of n1 is unknown"),
        "a block needs the numbers of the pool"
    );
    assert!(fixture.published_entries().await.is_empty());
    fixture.scheduler.publish_ready_nodes(10);
    fixture
        .wait_for_entry("node/n1", "the facts are evaluated", |_| true)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_blocks_and_trials_stay_within_the_fraction() {
    let fixture = fixture_with_strategy(settings(), 300).await;
    for node in ["n1", "n2"] {
        fixture
            .scheduler
            .publish_facts(&three_failed_launches(node, "a"));
        fixture
            .wait_for_entry(&format!("node/{node}"), "the node is on trial", |entry| {
                entry.canary
            })
            .await;
    }
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n3", "a"));
    let evidence = until("a brake prevents the block", async || {
        fixture
            .evidence("n3")
            .await
            .filter(|evidence| evidence.withheld.is_some())
    })
    .await;
    assert_eq!(
        evidence.withheld.unwrap(),
        "pool default has 10 ready nodes, of which 20 % or 2 may be blocked automatically or on \
         trial; 2 are"
    );
    assert!(evidence.scores[0].reached);
    assert!(!fixture.published_entries().await.contains_key("node/n3"));
}

/// A storm is the failure of many nodes of a pool at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_prevents_every_automatic_block() {
    let fixture = fixture_with_strategy(settings(), 600_000).await;
    let lost_nodes: Vec<_> = ["n5", "n6", "n7"]
        .map(|name| node_entry(name, false))
        .into();
    fixture.scheduler.publish_nodes(&lost_nodes);
    fixture.scheduler.publish_nodes(&[node_entry("n99", true)]);
    fixture.wait_for_node("n99").await;
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n1", "a"));
    let evidence = until("a brake prevents the block", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|evidence| evidence.withheld.is_some())
    })
    .await;
    let reason = evidence.withheld.unwrap();
    assert!(
        reason.starts_with("3 nodes of pool default failed or were blocked within five minutes"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_evacuations_are_rate_limited_across_leaders() {
    let mut fixture = Fixture::with_nodes(20, settings()).await;
    let classes = json!({ "read_only_fs": {
        "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS", "duration_ms": 600_000, "grace_ms": 0,
    } });
    fixture
        .set_strategy("cause-class", json!({ "classes": classes }))
        .await;
    let failure = |node: &str| {
        attempt_fact(
            &format!("alc_{node}"),
            node,
            FactKind::Failed,
            Some("read_only_fs"),
        )
    };
    fixture
        .scheduler
        .publish_facts(&[failure("n1"), failure("n2")]);
    let evacuate = hayward_blocklist_api::BlockAction::Evacuate;
    fixture
        .wait_for_entry("node/n1", "the node is evacuated", |entry| {
            entry.action == evacuate
        })
        .await;
    let second = fixture
        .wait_for_entry("node/n2", "the node is marked", |_| true)
        .await;
    assert_ne!(
        second.action, evacuate,
        "the second evacuation waits for ten seconds"
    );
    // The queued evacuation and its interval survive a restart.
    fixture.crash_and_restart().await;
    assert_ne!(
        fixture.published_entries().await["node/n2"].action,
        evacuate
    );
    fixture
        .wait_for_entry("node/n2", "the second evacuation starts", |entry| {
            entry.action == evacuate
        })
        .await;
    let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
    let evacuated_at = |node: &str| {
        let changes_of_node = history
            .changes
            .iter()
            .filter(|it| it.item.identifier == node);
        let times = changes_of_node
            .filter(|it| it.item.action == evacuate)
            .map(|it| it.at);
        times.min().unwrap()
    };
    let interval_ms = evacuated_at("n2").ms_since(evacuated_at("n1"));
    // The interval uses a monotonic clock and is reported by the wall clock, each in whole
    // milliseconds.
    assert!(interval_ms >= 9_990, "{interval_ms} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_trial_ends_and_a_trial_survives_a_restart() {
    let mut fixture = fixture_with_strategy(settings(), 300).await;
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n1", "a"));
    let trial = fixture
        .wait_for_entry("node/n1", "the node is on trial", |entry| entry.canary)
        .await;
    fixture.crash_and_restart().await;
    assert_eq!(fixture.published_entries().await["node/n1"], trial);
    assert!(fixture.read_block("nodes/n1").await.unwrap().item.canary);
    fixture.unblock("nodes/n1").await;
    assert!(fixture.published_entries().await.is_empty());
    assert_eq!(refusal_status(fixture.read_block("nodes/n1").await), 404);

    fixture
        .restart_with(|settings| settings.trial_ms = 200)
        .await;
    fixture
        .set_strategy("start-failures", json!({ "duration_ms": 1 }))
        .await;
    fixture
        .scheduler
        .publish_facts(&three_failed_launches("n2", "a"));
    let unused = until("the unused trial has ended", async || {
        let history: BlockHistory = fixture.viewer().get("/v1/blocklist/history").await.unwrap();
        let change = history.changes.into_iter().next()?;
        (change.event == BlockEvent::TrialUnused).then_some(change)
    })
    .await;
    assert_eq!(unused.item.identifier, "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_by_an_operator_ends_without_a_trial() {
    let fixture = fixture_with_strategy(settings(), 300).await;
    let body = json!({ "action": "mark", "cause": "fan", "duration_ms": 300 });
    let (_, added) = fixture.put_block("nodes/n1", &body).await;
    let path = format!("{ROOT_PATH}/changes?after={}&wait_ms=20000", added.revision);
    let _: hayward_blocklist_api::FeedChanges = fixture.viewer().get(&path).await.unwrap();
    assert!(fixture.published_entries().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strategy_that_would_block_most_of_a_pool_is_refused() {
    let fixture = Fixture::with_nodes(4, settings()).await;
    let facts: Vec<_> = ["n0", "n1", "n2"]
        .iter()
        .flat_map(|node| three_failed_launches(node, "a"))
        .collect();
    fixture.scheduler.publish_facts(&facts);
    until("the failures are recorded", async || {
        fixture
            .evidence("n2")
            .await
            .filter(|evidence| evidence.cost.attempts_lost == 3)
    })
    .await;
    let path = format!("{ROOT_PATH}/strategy");
    let body = json!({ "name": "start-failures", "parameters": {} });
    let refused = fixture
        .operator()
        .put::<_, StrategyView>(&path, &body)
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
    assert_eq!(strategy.name, "none", "the strategy is unchanged");
    fixture
        .set_strategy("start-failures", json!({ "n": 4 }))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_the_user_blocks_no_node() {
    let fixture = fixture_with_strategy(settings(), 600_000).await;
    fixture.set_strategy("failure-count", json!({})).await;
    let failure =
        |number: u32| attempt_fact(&format!("alc_{number}"), "n1", FactKind::Failed, None);
    fixture
        .scheduler
        .publish_facts(&(0..6).map(failure).collect::<Vec<_>>());
    let evidence = until("the failures are recorded", async || {
        fixture
            .evidence("n1")
            .await
            .filter(|evidence| evidence.cost.attempts_lost == 6)
    })
    .await;
    assert_eq!(
        evidence.scores[0].score, 0,
        "failures of one user only do not count"
    );
    assert!(evidence.facts.iter().all(|fact| !fact.counted));
    let (key, mut failure_of_bob) = failure(7);
    let attempt = failure_of_bob.attempt.as_mut().unwrap();
    attempt.user = hayward_vocabulary::UserName::new("bob").unwrap();
    fixture.scheduler.publish_facts(&[(key, failure_of_bob)]);
    fixture
        .wait_for_entry(
            "node/n1",
            "work of another user fails on the node too",
            |_| true,
        )
        .await;
}

/// Every item can be removed by a command, even if its target no longer exists.
#[tokio::test(flavor = "multi_thread")]
async fn every_block_can_be_removed_even_if_its_node_no_longer_exists() {
    for event in ["lost", "removed", "returned"] {
        let fixture = fixture_with_strategy(settings(), 400).await;
        let block_body =
            |action: &str| json!({ "action": action, "cause": "x", "permanent": true });
        let (mut graceful, mut job_scoped) = (block_body("evacuate"), block_body("mark"));
        graceful["evacuation"] = json!({ "policy": "GRACEFUL" });
        job_scoped["scope"] = json!("JOB:job_1");
        for (target, body) in [
            ("nodes/n2", block_body("mark")),
            ("nodes/n3", block_body("evacuate")),
            ("nodes/n4", graceful),
            ("workers/alc_n2", block_body("mark")),
            ("workers/alc_n3", block_body("evacuate")),
            ("nodes/n5", job_scoped),
        ] {
            assert_eq!(
                fixture.put_block_status(target, &body).await,
                201,
                "{target}"
            );
        }
        fixture
            .scheduler
            .publish_facts(&three_failed_launches("n1", "a"));
        fixture
            .wait_for_entry("node/n1", "the node is on trial", |entry| entry.canary)
            .await;
        for number in 1..=5 {
            let name = format!("n{number}");
            if event == "removed" {
                fixture.scheduler.machines.remove(&name);
            } else {
                fixture.scheduler.publish_nodes(&[node_entry(&name, false)]);
            }
        }
        fixture.scheduler.machines.wait_until_absorbed().await;
        if event == "returned" {
            fixture.scheduler.publish_ready_nodes(10);
            fixture.scheduler.machines.wait_until_absorbed().await;
        }
        for target in [
            "nodes/n1",
            "nodes/n2",
            "nodes/n3",
            "nodes/n4",
            "workers/alc_n2",
            "workers/alc_n3",
            "nodes/n5?scope=JOB:job_1",
        ] {
            fixture.unblock(target).await;
        }
        assert!(fixture.published_entries().await.is_empty(), "{event}");
    }
}
