use std::sync::atomic::{AtomicUsize, Ordering};

use hayward_vocabulary::invariant::{Evidence, Inquiry, Rule};
use parking_lot::Mutex as Plain;

use super::*;
use crate::runtime::clock::ManualClock;

const ROOM: Rule = Rule {
    id: "I2",
    title: "no over-commit",
};
const LIMITS: Rule = Rule {
    id: "I10",
    title: "accounts balance",
};

fn found(rule: Rule, broken: bool) -> Timed {
    timed(|| {
        let mut inquiry = Inquiry::into(rule);
        inquiry.examine(broken.then(|| Evidence::new("n1", "holds 5 of 4 quanta")));
        inquiry.end()
    })
}

fn seen(findings: Vec<Timed>) -> Seen {
    Seen {
        findings,
        revision: 7,
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

#[test]
fn a_turn_is_told_once_and_the_last_good_look_is_remembered() {
    let mut register = Register::default();
    let look = |broken| seen(vec![found(LIMITS, false), found(ROOM, broken)]);
    assert!(register.take(&look(false), at(10)).is_empty(), "no news");
    let turned = register.take(&look(true), at(20));
    assert_eq!(turned.len(), 1);
    assert_eq!((turned[0].id, turned[0].now), ("I2", RuleResult::Violated));
    assert_eq!(turned[0].first, "n1: holds 5 of 4 quanta");
    assert!(register.take(&look(true), at(30)).is_empty(), "told before");

    let rules = register.standing();
    let ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    assert_eq!(ids, ["I2", "I10"], "by number");
    assert_eq!(rules[0].last_good_at, Some(at(10)));
    assert_eq!((rules[0].checked_at, rules[0].violations), (at(30), 1));
    assert_eq!(rules[1].last_good_at, Some(at(30)));

    let back = register.take(&look(false), at(40));
    assert_eq!(back[0].now, RuleResult::Holds);
}

#[test]
fn what_is_broken_or_unknown_from_the_beginning() {
    let mut register = Register::default();
    let unknown = Timed {
        finding: Finding::not_checked(LIMITS, "not heard yet"),
        took_us: 1,
    };
    let turns = register.take(&seen(vec![found(ROOM, true), unknown.clone()]), at(1));
    let told: Vec<&str> = turns.iter().map(|turn| turn.id).collect();
    assert_eq!(told, ["I2"], "a rule that was never checked is no turn");
    assert_eq!(register.standing()[1].why.as_deref(), Some("not heard yet"));
    assert_eq!(register.standing()[0].last_good_at, None);

    register.take(&seen(vec![found(LIMITS, false)]), at(2));
    let turns = register.take(&seen(vec![unknown]), at(3));
    assert_eq!(turns[0].now, RuleResult::NotChecked);
    assert_eq!(turns[0].first, "not heard yet");
}

/// Counts its looks; each takes as long as told.
struct Counted(Arc<AtomicUsize>, Plain<Duration>);

impl Looks for Counted {
    fn look(&self) -> Pin<Box<dyn Future<Output = Result<Seen, Problem>> + Send + '_>> {
        let takes = *self.1.lock();
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Ok(seen(vec![found(ROOM, false)]))
        })
    }
}

#[tokio::test]
async fn looks_that_cost_something_are_rationed() {
    let count = Arc::new(AtomicUsize::new(0));
    let takes = Duration::from_millis(20);
    let looks = Counted(count.clone(), Plain::new(takes));
    let watch = Watch::new("test", looks).by(Arc::new(ManualClock::at(at(5))));
    let first = watch.look().await.unwrap();
    assert_eq!((first.service.as_str(), first.revision), ("test", 7));
    assert_eq!(first.checked_at, at(5));
    assert_eq!(watch.look().await.unwrap(), first);
    assert_eq!(count.load(Ordering::SeqCst), 1, "answered from the last");
}

#[tokio::test]
async fn who_cannot_look_says_so() {
    let watch = Watch::described("test");
    let problem = watch.look().await.unwrap_err();
    assert_eq!(problem.status(), http::StatusCode::SERVICE_UNAVAILABLE);
}

/// Finds out something at first, and then for a while nothing.
struct Failing(Arc<AtomicUsize>);

impl Looks for Failing {
    fn look(&self) -> Pin<Box<dyn Future<Output = Result<Seen, Problem>> + Send + '_>> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if before == 0 {
                return Ok(seen(vec![found(ROOM, false)]));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            Err(Problem::standby())
        })
    }
}

#[tokio::test]
async fn a_look_that_failed_is_remembered_and_ends_what_the_gauges_say() {
    let count = Arc::new(AtomicUsize::new(0));
    let watch = Watch::new("test-failing", Failing(count.clone()));
    watch.look().await.unwrap();
    assert_eq!(gauges::held_of("test-failing"), [("I2".to_owned(), 1.0)]);
    // The first look cost next to nothing, so there is soon another.
    while watch.look().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert!(gauges::held_of("test-failing").is_empty());
    watch.look().await.unwrap_err();
    assert_eq!(count.load(Ordering::SeqCst), 2, "nobody looked again");
}
