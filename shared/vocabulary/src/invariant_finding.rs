//! The finding of one check of an invariant, and the two invariants that all services share:
//! deadlines and bounds. Pure code evaluates the working set of a service. The service adds the
//! time of the check and of the last good one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A rule with its number in the specification and a short title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub id: &'static str,
    pub title: &'static str,
}

/// One place where a rule is broken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    /// The id or the name of what breaks it.
    pub subject: String,
    /// One sentence for people.
    pub detail: String,
    /// The numbers behind the sentence; names contain the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u64>,
}

impl Evidence {
    pub fn new(subject: &(impl ToString + ?Sized), detail: impl Into<String>) -> Self {
        Self {
            subject: subject.to_string(),
            detail: detail.into(),
            numbers: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn with_number(mut self, name: &str, value: u64) -> Self {
        self.numbers.insert(name.to_owned(), value);
        self
    }
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Holds,
    /// The number of violations, and the first of them as evidence.
    Violated {
        count: u64,
        evidence: Vec<Evidence>,
    },
    /// The reason why the rule could not be checked.
    NotChecked(String),
}

/// The result of one check of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: Rule,
    /// Number of checked objects. A rule that holds for 0 objects proves nothing.
    pub examined: u64,
    pub outcome: Outcome,
}

impl Finding {
    pub fn not_checked(rule: Rule, reason: impl Into<String>) -> Self {
        Self {
            rule,
            examined: 0,
            outcome: Outcome::NotChecked(reason.into()),
        }
    }

    pub fn holds(&self) -> bool {
        self.outcome == Outcome::Holds
    }
}

/// Collects a finding. Evidence is limited, the count is not (I25).
#[derive(Debug, Clone)]
pub struct Inquiry {
    rule: Rule,
    examined: u64,
    count: u64,
    evidence: Vec<Evidence>,
}

impl Inquiry {
    /// Maximum number of pieces of evidence in a finding.
    pub const MAX_EVIDENCE: usize = 10;

    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            examined: 0,
            count: 0,
            evidence: Vec::new(),
        }
    }

    /// Counts one checked object. `violation` is present if the object breaks the rule.
    pub fn examine(&mut self, violation: Option<Evidence>) {
        self.examined += 1;
        if let Some(violation) = violation {
            self.add_violation(violation);
        }
    }

    /// Adds a violation.
    pub fn add_violation(&mut self, violation: Evidence) {
        self.count += 1;
        if self.evidence.len() < Self::MAX_EVIDENCE {
            self.evidence.push(violation);
        }
    }

    pub fn finish(self) -> Finding {
        let outcome = match self.count {
            0 => Outcome::Holds,
            count => Outcome::Violated {
                count,
                evidence: self.evidence,
            },
        };
        Finding {
            rule: self.rule,
            examined: self.examined,
            outcome,
        }
    }
}

/// Durations of current states, from repeated checks. A key that is missing from a check is
/// dropped. A changed state begins a new duration. Times are milliseconds of a monotonic clock
/// (R4).
#[derive(Debug, Clone)]
pub struct Ages<K, S> {
    /// State of each key, and the time of its first check.
    states: BTreeMap<K, (S, u64)>,
}

impl<K, S> Default for Ages<K, S> {
    fn default() -> Self {
        Self {
            states: BTreeMap::new(),
        }
    }
}

impl<K: Ord, S: PartialEq> Ages<K, S> {
    /// Adds the result of a check.
    pub fn record(&mut self, now_ms: u64, all: impl IntoIterator<Item = (K, S)>) {
        let mut previous = std::mem::take(&mut self.states);
        for (key, state) in all {
            let since = previous.remove(&key).filter(|(old, _)| *old == state);
            let since = since.map_or(now_ms, |(_, since)| since);
            self.states.insert(key, (state, since));
        }
    }

    /// Returns the keys of the last check with their state and its duration in milliseconds.
    pub fn ages(&self, now_ms: u64) -> impl Iterator<Item = (&K, &S, u64)> {
        let states = self.states.iter();
        states.map(move |(key, (state, since))| (key, state, now_ms.saturating_sub(*since)))
    }
}

/// The invariant of [`check_deadlines`].
pub const DEADLINES: Rule = Rule {
    id: "I24",
    title: "no state outlives its deadline",
};
/// Tolerance of a deadline in milliseconds: one sweep.
pub const SWEEP_MS: u64 = 60_000;

/// An object in a state that must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedState<S> {
    pub subject: S,
    /// The state, or the event that is overdue.
    pub state: &'static str,
    /// Milliseconds since its deadline; 0 before it.
    pub late_ms: u64,
    /// The cause for people, if it is known.
    pub cause: Option<String>,
}

/// Checks that each state ends within one sweep after its deadline (I24).
pub fn check_deadlines<S: ToString>(all: impl IntoIterator<Item = TimedState<S>>) -> Finding {
    let mut inquiry = Inquiry::new(DEADLINES);
    for it in all {
        let violation = || {
            let mut detail = format!("{}, and is past its deadline", it.state);
            if let Some(cause) = &it.cause {
                detail = format!("{detail}: {cause}");
            }
            Evidence::new(&it.subject, detail).with_number("late_ms", it.late_ms)
        };
        inquiry.examine((it.late_ms > SWEEP_MS).then(violation));
    }
    inquiry.finish()
}

/// A size with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    pub name: &'static str,
    pub current: u64,
    pub limit: u64,
}

/// The invariant of [`check_bounds`].
pub const BOUNDS: Rule = Rule {
    id: "I25",
    title: "queues, memories and backlogs stay within their limits",
};

/// Checks that no limit is exceeded (I25).
pub fn check_bounds(bounds: &[Bound]) -> Finding {
    let mut inquiry = Inquiry::new(BOUNDS);
    for Bound {
        name,
        current,
        limit,
    } in bounds
    {
        let is_exceeded = current > limit;
        let violation = || {
            let detail = format!("there are {current}, and at most {limit} are permitted");
            Evidence::new(name, detail)
                .with_number("has", *current)
                .with_number("most", *limit)
        };
        inquiry.examine(is_exceeded.then(violation));
    }
    inquiry.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        id: "I2",
        title: "no over-commit",
    };

    #[test]
    fn the_count_continues_after_the_evidence_is_full() {
        let mut inquiry = Inquiry::new(RULE);
        for number in 0..25_u64 {
            let violation =
                Evidence::new(&format!("n{number}"), "too much").with_number("held", number);
            inquiry.examine((number > 0).then_some(violation));
        }
        let found = inquiry.finish();
        assert_eq!(found.examined, 25);
        let Outcome::Violated { count, evidence } = found.outcome else {
            panic!("it is broken");
        };
        assert_eq!((count, evidence.len()), (24, Inquiry::MAX_EVIDENCE));
        assert_eq!(evidence[0].numbers["held"], 1);
    }

    /// The limit itself is permitted (I25).
    #[test]
    fn a_size_over_its_limit_is_named() {
        let bound = |current| Bound {
            name: "commands that wait",
            current,
            limit: 3,
        };
        assert!(check_bounds(&[bound(0), bound(3)]).holds());
        let found = check_bounds(&[bound(3), bound(4)]);
        let Outcome::Violated { count: 1, evidence } = found.outcome else {
            panic!("one is over its limit");
        };
        assert_eq!(evidence[0].numbers["has"], 4);
        assert_eq!(found.examined, 2);
    }

    #[test]
    fn a_changed_state_or_missing_key_restarts_its_age() {
        let mut ages = Ages::default();
        let ages_at = |ages: &Ages<&str, u8>, now| {
            let all: Vec<u64> = ages.ages(now).map(|(_, _, age)| age).collect();
            all
        };
        ages.record(10, [("a", 1), ("b", 1)]);
        ages.record(20, [("a", 1), ("b", 2)]);
        assert_eq!(ages_at(&ages, 25), [15, 5]);
        ages.record(30, [("b", 2)]);
        ages.record(40, [("a", 1), ("b", 2)]);
        assert_eq!(ages_at(&ages, 40), [0, 20]);
    }

    /// One sweep is tolerated (I24).
    #[test]
    fn a_state_later_than_a_sweep_after_its_deadline_is_named() {
        let check = |late_ms| {
            check_deadlines([TimedState {
                subject: "n1",
                state: "is suspect",
                late_ms,
                cause: Some("no sweep ran".into()),
            }])
        };
        assert!(check(0).holds() && check(SWEEP_MS).holds());
        let Outcome::Violated { evidence, .. } = check(SWEEP_MS + 1).outcome else {
            panic!("it is late");
        };
        let detail = "is suspect, and is past its deadline: no sweep ran";
        assert_eq!(evidence[0].detail, detail);
    }

    #[test]
    fn a_rule_without_violation_holds() {
        let mut inquiry = Inquiry::new(RULE);
        inquiry.examine(None);
        assert!(inquiry.finish().holds());
        assert!(!Finding::not_checked(RULE, "no data yet").holds());
    }
}
