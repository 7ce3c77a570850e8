//! Tests of the history of results, and of the limits on evaluations.

use std::sync::atomic::{AtomicUsize, Ordering};

use hayward_vocabulary::invariant_finding::{Evidence, Inquiry, Rule};

use super::*;
use crate::runtime::clock::ManualClock;

const NO_OVERCOMMIT: Rule = Rule {
    id: "I2",
    title: "no over-commit",
};
const ACCOUNTS_BALANCE: Rule = Rule {
    id: "I10",
    title: "accounts balance",
};

fn finding(rule: Rule, broken: bool) -> TimedFinding {
    timed_finding(|| {
        let mut inquiry = Inquiry::new(rule);
        inquiry.examine(broken.then(|| Evidence::new("n1", "holds 5 of 4 quanta")));
        inquiry.finish()
    })
}

fn evaluation(findings: Vec<TimedFinding>) -> Evaluation {
    Evaluation {
        findings,
        revision: 7,
    }
}

fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

#[test]
fn a_transition_is_reported_once_and_the_last_good_check_is_stored() {
    let mut history = History::default();
    let evaluation_with = |broken| {
        evaluation(vec![
            finding(ACCOUNTS_BALANCE, false),
            finding(NO_OVERCOMMIT, broken),
        ])
    };
    assert!(
        history
            .record(&evaluation_with(false), timestamp(10))
            .is_empty(),
        "no transition"
    );
    let transitions = history.record(&evaluation_with(true), timestamp(20));
    assert_eq!(transitions.len(), 1);
    assert_eq!(
        (transitions[0].id, transitions[0].result),
        ("I2", RuleResult::Violated)
    );
    assert_eq!(transitions[0].detail, "n1: holds 5 of 4 quanta");
    assert!(
        history
            .record(&evaluation_with(true), timestamp(30))
            .is_empty(),
        "reported before"
    );

    let rules = history.status();
    let ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["I2", "I10"], "by number");
    assert_eq!(rules[0].last_good_at, Some(timestamp(10)));
    assert_eq!(
        (rules[0].checked_at, rules[0].violations),
        (timestamp(30), 1)
    );
    assert_eq!(rules[1].last_good_at, Some(timestamp(30)));

    let transitions = history.record(&evaluation_with(false), timestamp(40));
    assert_eq!(transitions[0].result, RuleResult::Holds);
}

#[test]
fn a_rule_broken_at_the_first_check_is_a_transition_and_an_unchecked_one_is_not() {
    let mut history = History::default();
    let not_checked_yet = TimedFinding {
        finding: Finding::not_checked(ACCOUNTS_BALANCE, "no data yet"),
        took_us: 1,
    };
    let transitions = history.record(
        &evaluation(vec![finding(NO_OVERCOMMIT, true), not_checked_yet.clone()]),
        timestamp(1),
    );
    let ids: Vec<&str> = transitions.iter().map(|transition| transition.id).collect();
    assert_eq!(
        ids,
        ["I2"],
        "a rule that was never checked has no transition"
    );
    assert_eq!(history.status()[1].why.as_deref(), Some("no data yet"));
    assert_eq!(history.status()[0].last_good_at, None);

    history.record(
        &evaluation(vec![finding(ACCOUNTS_BALANCE, false)]),
        timestamp(2),
    );
    let transitions = history.record(&evaluation(vec![not_checked_yet]), timestamp(3));
    assert_eq!(transitions[0].result, RuleResult::NotChecked);
    assert_eq!(transitions[0].detail, "no data yet");
}

/// Source that counts its evaluations.
struct CountingSource {
    count: Arc<AtomicUsize>,
    /// Duration of each evaluation.
    duration: Duration,
}

impl InvariantSource for CountingSource {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>> {
        let duration = self.duration;
        self.count.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::time::sleep(duration).await;
            Ok(evaluation(vec![finding(NO_OVERCOMMIT, false)]))
        })
    }
}

#[tokio::test]
async fn expensive_evaluations_are_limited() {
    let count = Arc::new(AtomicUsize::new(0));
    let source = CountingSource {
        count: count.clone(),
        duration: Duration::from_millis(20),
    };
    let monitor =
        InvariantMonitor::new("test", source).with_clock(Arc::new(ManualClock::new(timestamp(5))));
    let first = monitor.evaluate().await.unwrap();
    assert_eq!((first.service.as_str(), first.revision), ("test", 7));
    assert_eq!(first.checked_at, timestamp(5));
    assert_eq!(monitor.evaluate().await.unwrap(), first);
    assert_eq!(
        count.load(Ordering::SeqCst),
        1,
        "answered from the last evaluation"
    );
}

#[tokio::test]
async fn a_monitor_without_source_is_unavailable() {
    let monitor = InvariantMonitor::without_source("test");
    let problem = monitor.evaluate().await.unwrap_err();
    assert_eq!(problem.status(), http::StatusCode::SERVICE_UNAVAILABLE);
}

/// Source whose first evaluation succeeds. The next ones fail.
struct FailingSource(Arc<AtomicUsize>);

impl InvariantSource for FailingSource {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if before == 0 {
                return Ok(evaluation(vec![finding(NO_OVERCOMMIT, false)]));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            Err(Problem::standby())
        })
    }
}

#[tokio::test]
async fn a_failed_evaluation_is_cached_and_clears_the_gauges() {
    let count = Arc::new(AtomicUsize::new(0));
    let monitor = InvariantMonitor::new("test-failing", FailingSource(count.clone()));
    monitor.evaluate().await.unwrap();
    assert_eq!(
        gauges::holds_readings("test-failing"),
        [("I2".to_owned(), 1.0)]
    );
    // The first evaluation was short, so the next one is permitted soon.
    while monitor.evaluate().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert!(gauges::holds_readings("test-failing").is_empty());
    monitor.evaluate().await.unwrap_err();
    assert_eq!(
        count.load(Ordering::SeqCst),
        2,
        "it was not evaluated again"
    );
}
