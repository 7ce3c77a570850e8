//! The finding of one check of an invariant. Pure code evaluates the working set of a service. The
//! service adds the time of the check and of the last good one.

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
    pub fn number(mut self, name: &str, value: u64) -> Self {
        self.numbers.insert(name.to_owned(), value);
        self
    }
}

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
    /// How many things were checked. A rule that holds for 0 things proves nothing.
    pub examined: u64,
    pub outcome: Outcome,
}

impl Finding {
    pub fn not_checked(rule: Rule, why: impl Into<String>) -> Self {
        Self {
            rule,
            examined: 0,
            outcome: Outcome::NotChecked(why.into()),
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
    /// Most pieces of evidence in a finding.
    pub const SHOWN: usize = 10;

    pub fn into(rule: Rule) -> Self {
        Self {
            rule,
            examined: 0,
            count: 0,
            evidence: Vec::new(),
        }
    }

    /// Counts one checked thing; `fault` is present if it breaks the rule.
    pub fn examine(&mut self, fault: Option<Evidence>) {
        self.examined += 1;
        if let Some(fault) = fault {
            self.breach(fault);
        }
    }

    /// Adds a violation.
    pub fn breach(&mut self, fault: Evidence) {
        self.count += 1;
        if self.evidence.len() < Self::SHOWN {
            self.evidence.push(fault);
        }
    }

    pub fn end(self) -> Finding {
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

/// Durations of current states, from repeated checks. Missing things are forgotten, and changed
/// ones restart. Times are milliseconds of a monotonic clock (R4).
#[derive(Debug, Clone)]
pub struct Ages<K, S> {
    seen: BTreeMap<K, (S, u64)>,
}

impl<K, S> Default for Ages<K, S> {
    fn default() -> Self {
        Self {
            seen: BTreeMap::new(),
        }
    }
}

impl<K: Ord, S: PartialEq> Ages<K, S> {
    /// Adds the result of a check.
    pub fn record(&mut self, now_ms: u64, all: impl IntoIterator<Item = (K, S)>) {
        let mut before = std::mem::take(&mut self.seen);
        for (key, state) in all {
            let since = before.remove(&key).filter(|(was, _)| *was == state);
            let since = since.map_or(now_ms, |(_, since)| since);
            self.seen.insert(key, (state, since));
        }
    }

    /// The things of the last check with their state and its duration in milliseconds.
    pub fn ages(&self, now_ms: u64) -> impl Iterator<Item = (&K, &S, u64)> {
        let seen = self.seen.iter();
        seen.map(move |(key, (state, since))| (key, state, now_ms.saturating_sub(*since)))
    }
}

pub const MORTAL: Rule = Rule {
    id: "I24",
    title: "no state outlives its deadline",
};
/// Tolerance of a deadline in milliseconds: one sweep.
pub const SWEEP_MS: u64 = 60_000;

/// A thing in a state that has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transit<S> {
    pub subject: S,
    /// The state, or the event that is overdue.
    pub state: &'static str,
    /// Milliseconds since its deadline; 0 before it.
    pub late_ms: u64,
    /// The cause for people, if it is known.
    pub why: Option<String>,
}

/// Checks that each thing ends within one sweep after its deadline (I24).
pub fn mortal<S: ToString>(all: impl IntoIterator<Item = Transit<S>>) -> Finding {
    let mut inquiry = Inquiry::into(MORTAL);
    for it in all {
        let fault = || {
            let mut detail = format!("{}, and is past its deadline", it.state);
            if let Some(why) = &it.why {
                detail = format!("{detail}: {why}");
            }
            Evidence::new(&it.subject, detail).number("late_ms", it.late_ms)
        };
        inquiry.examine((it.late_ms > SWEEP_MS).then(fault));
    }
    inquiry.end()
}

/// A thing with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    pub what: &'static str,
    pub has: u64,
    pub most: u64,
}

pub const BOUNDED: Rule = Rule {
    id: "I25",
    title: "queues, memories and backlogs stay within their limits",
};

/// Checks that all limits are kept (I25).
pub fn bounded(bounds: &[Bound]) -> Finding {
    let mut inquiry = Inquiry::into(BOUNDED);
    for Bound { what, has, most } in bounds {
        let over = has > most;
        let fault = || {
            let detail = format!("there are {has}, and {most} at most are meant to be");
            Evidence::new(what, detail)
                .number("has", *has)
                .number("most", *most)
        };
        inquiry.examine(over.then(fault));
    }
    inquiry.end()
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
        let mut inquiry = Inquiry::into(RULE);
        for number in 0..25_u64 {
            let fault = Evidence::new(&format!("n{number}"), "too much").number("held", number);
            inquiry.examine((number > 0).then_some(fault));
        }
        let found = inquiry.end();
        assert_eq!(found.examined, 25);
        let Outcome::Violated { count, evidence } = found.outcome else {
            panic!("it is broken");
        };
        assert_eq!((count, evidence.len()), (24, Inquiry::SHOWN));
        assert_eq!(evidence[0].numbers["held"], 1);
    }

    /// The limit itself is permitted (I25).
    #[test]
    fn a_thing_over_its_limit_is_named() {
        let bound = |has| Bound {
            what: "commands that wait",
            has,
            most: 3,
        };
        assert!(bounded(&[bound(0), bound(3)]).holds());
        let found = bounded(&[bound(3), bound(4)]);
        let Outcome::Violated { count: 1, evidence } = found.outcome else {
            panic!("one is over its limit");
        };
        assert_eq!(evidence[0].numbers["has"], 4);
        assert_eq!(found.examined, 2);
    }

    #[test]
    fn a_changed_or_missing_thing_restarts_its_age() {
        let mut ages = Ages::default();
        let age = |ages: &Ages<&str, u8>, now| {
            let all: Vec<u64> = ages.ages(now).map(|(_, _, age)| age).collect();
            all
        };
        ages.record(10, [("a", 1), ("b", 1)]);
        ages.record(20, [("a", 1), ("b", 2)]);
        assert_eq!(age(&ages, 25), [15, 5]);
        ages.record(30, [("b", 2)]);
        ages.record(40, [("a", 1), ("b", 2)]);
        assert_eq!(age(&ages, 40), [0, 20]);
    }

    /// One sweep is tolerated (I24).
    #[test]
    fn a_thing_later_than_a_sweep_after_its_deadline_is_named() {
        let check = |late_ms| {
            mortal([Transit {
                subject: "n1",
                state: "is suspect",
                late_ms,
                why: Some("no sweep ran".into()),
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
        let mut inquiry = Inquiry::into(RULE);
        inquiry.examine(None);
        assert!(inquiry.end().holds());
        assert!(!Finding::not_checked(RULE, "nothing is kept").holds());
    }
}
