use std::sync::atomic::{AtomicUsize, Ordering};

use hayward_vocabulary::invariant::{Evidence, Inquiry, Rule};
use parking_lot::Mutex as Plain;

use super::*;
use crate::runtime::clock::ManualClock;

const QUANTA: Rule = Rule {
    id: "I2",
    title: "no over-commit",
};
const LIMITS: Rule = Rule {
    id: "I10",
    title: "accounts balance",
};

fn found(rule: Rule, broken: bool) -> TimedFinding {
    timed_finding(|| {
        let mut inquiry = Inquiry::into(rule);
        inquiry.examine(broken.then(|| Evidence::new("n1", "holds 5 of 4 quanta")));
        inquiry.end()
    })
}

fn evaluation(findings: Vec<TimedFinding>) -> Evaluation {
    Evaluation {
        findings,
        revision: 7,
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

#[test]
fn a_transition_is_reported_once_and_the_last_good_check_is_stored() {
    let mut history = History::default();
    let check = |broken| evaluation(vec![found(LIMITS, false), found(QUANTA, broken)]);
    assert!(
        history.record(&check(false), at(10)).is_empty(),
        "no transition"
    );
    let transitions = history.record(&check(true), at(20));
    assert_eq!(transitions.len(), 1);
    assert_eq!(
        (transitions[0].id, transitions[0].now),
        ("I2", RuleResult::Violated)
    );
    assert_eq!(transitions[0].first, "n1: holds 5 of 4 quanta");
    assert!(
        history.record(&check(true), at(30)).is_empty(),
        "reported before"
    );

    let rules = history.status();
    let ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["I2", "I10"], "by number");
    assert_eq!(rules[0].last_good_at, Some(at(10)));
    assert_eq!((rules[0].checked_at, rules[0].violations), (at(30), 1));
    assert_eq!(rules[1].last_good_at, Some(at(30)));

    let back = history.record(&check(false), at(40));
    assert_eq!(back[0].now, RuleResult::Holds);
}

#[test]
fn a_rule_broken_at_the_first_check_is_a_transition_and_an_unchecked_one_is_not() {
    let mut history = History::default();
    let unknown = TimedFinding {
        finding: Finding::not_checked(LIMITS, "no data yet"),
        took_us: 1,
    };
    let transitions = history.record(
        &evaluation(vec![found(QUANTA, true), unknown.clone()]),
        at(1),
    );
    let ids: Vec<&str> = transitions.iter().map(|transition| transition.id).collect();
    assert_eq!(
        ids,
        ["I2"],
        "a rule that was never checked has no transition"
    );
    assert_eq!(history.status()[1].why.as_deref(), Some("no data yet"));
    assert_eq!(history.status()[0].last_good_at, None);

    history.record(&evaluation(vec![found(LIMITS, false)]), at(2));
    let transitions = history.record(&evaluation(vec![unknown]), at(3));
    assert_eq!(transitions[0].now, RuleResult::NotChecked);
    assert_eq!(transitions[0].first, "no data yet");
}

/// Source that counts its evaluations. Each takes the given time.
struct Counted(Arc<AtomicUsize>, Plain<Duration>);

impl InvariantSource for Counted {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>> {
        let takes = *self.1.lock();
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Ok(evaluation(vec![found(QUANTA, false)]))
        })
    }
}

#[tokio::test]
async fn expensive_evaluations_are_limited() {
    let count = Arc::new(AtomicUsize::new(0));
    let takes = Duration::from_millis(20);
    let source = Counted(count.clone(), Plain::new(takes));
    let monitor =
        InvariantMonitor::new("test", source).with_clock(Arc::new(ManualClock::at(at(5))));
    let first = monitor.evaluate().await.unwrap();
    assert_eq!((first.service.as_str(), first.revision), ("test", 7));
    assert_eq!(first.checked_at, at(5));
    assert_eq!(monitor.evaluate().await.unwrap(), first);
    assert_eq!(
        count.load(Ordering::SeqCst),
        1,
        "answered from the last evaluation"
    );
}

#[tokio::test]
async fn a_monitor_without_source_is_unavailable() {
    let monitor = InvariantMonitor::described("test");
    let problem = monitor.evaluate().await.unwrap_err();
    assert_eq!(problem.status(), http::StatusCode::SERVICE_UNAVAILABLE);
}

/// Source whose first evaluation succeeds. The next ones fail.
struct Failing(Arc<AtomicUsize>);

impl InvariantSource for Failing {
    fn evaluate(&self) -> Pin<Box<dyn Future<Output = Result<Evaluation, Problem>> + Send + '_>> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if before == 0 {
                return Ok(evaluation(vec![found(QUANTA, false)]));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            Err(Problem::standby())
        })
    }
}

#[tokio::test]
async fn a_failed_evaluation_is_cached_and_clears_the_gauges() {
    let count = Arc::new(AtomicUsize::new(0));
    let monitor = InvariantMonitor::new("test-failing", Failing(count.clone()));
    monitor.evaluate().await.unwrap();
    assert_eq!(gauges::held_of("test-failing"), [("I2".to_owned(), 1.0)]);
    // The first evaluation was short, so the next one is permitted soon.
    while monitor.evaluate().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert!(gauges::held_of("test-failing").is_empty());
    monitor.evaluate().await.unwrap_err();
    assert_eq!(
        count.load(Ordering::SeqCst),
        2,
        "it was not evaluated again"
    );
}
