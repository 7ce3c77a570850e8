//! What is remembered from look to look. Pure.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant::{Finding, Outcome};

use super::{RuleResult, RuleStanding, Seen, Timed};

/// How each rule stood at the last look, by place: a rule that a look leaves out is forgotten.
#[derive(Debug, Default)]
pub(super) struct Register {
    rules: BTreeMap<(u32, &'static str), RuleStanding>,
}

/// The result of a rule is another than at the look before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub id: &'static str,
    pub title: &'static str,
    pub now: RuleResult,
    pub violations: u64,
    /// The first piece of evidence, or why it is not checked.
    pub first: String,
}

/// `I2` before `I10`.
fn place(id: &str) -> u32 {
    id.trim_start_matches(char::is_alphabetic)
        .parse()
        .unwrap_or(u32::MAX)
}

impl Register {
    /// Takes a look in, and says what turned. That a rule holds at the first look is no news.
    pub fn take(&mut self, seen: &Seen, now: Timestamp) -> Vec<Turn> {
        let mut turns = Vec::new();
        let mut rules = BTreeMap::new();
        for timed in &seen.findings {
            let rule = timed.finding.rule;
            let key = (place(rule.id), rule.id);
            let before = self.rules.get(&key);
            let standing = standing(timed, seen.revision, now, before);
            let was = before.map_or(RuleResult::Holds, |before| before.result);
            let at_first = before.is_none() && standing.result == RuleResult::NotChecked;
            if standing.result != was && !at_first {
                turns.push(turn(&timed.finding, &standing));
            }
            rules.insert(key, standing);
        }
        self.rules = rules;
        turns
    }

    pub fn standing(&self) -> Vec<RuleStanding> {
        self.rules.values().cloned().collect()
    }
}

fn standing(
    timed: &Timed,
    revision: u64,
    now: Timestamp,
    before: Option<&RuleStanding>,
) -> RuleStanding {
    let finding = &timed.finding;
    let (result, why, violations, evidence) = match &finding.outcome {
        Outcome::Holds => (RuleResult::Holds, None, 0, Vec::new()),
        Outcome::Violated { count, evidence } => {
            (RuleResult::Violated, None, *count, evidence.clone())
        }
        Outcome::NotChecked(why) => (RuleResult::NotChecked, Some(why.clone()), 0, Vec::new()),
    };
    let last_good = before.and_then(|before| before.last_good_at);
    RuleStanding {
        id: finding.rule.id.to_owned(),
        title: finding.rule.title.to_owned(),
        result,
        why,
        revision,
        checked_at: now,
        last_good_at: if finding.holds() {
            Some(now)
        } else {
            last_good
        },
        examined: finding.examined,
        violations,
        evidence,
        took_us: timed.took_us,
    }
}

fn turn(finding: &Finding, standing: &RuleStanding) -> Turn {
    let first = standing.evidence.first();
    let first = first.map(|it| format!("{}: {}", it.subject, it.detail));
    Turn {
        id: finding.rule.id,
        title: finding.rule.title,
        now: standing.result,
        violations: standing.violations,
        first: first.or(standing.why.clone()).unwrap_or_default(),
    }
}
