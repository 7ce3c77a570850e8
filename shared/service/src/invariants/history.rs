//! Results of the last evaluation and their changes. The code is pure.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant::{Finding, Outcome};

use super::{Evaluation, RuleResult, RuleStatus, TimedFinding};

/// Last result of each rule, in order of number. Rules without a finding are dropped.
#[derive(Debug, Default)]
pub(super) struct History {
    rules: BTreeMap<(u32, &'static str), RuleStatus>,
}

/// A change of the result of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transition {
    pub id: &'static str,
    pub title: &'static str,
    pub now: RuleResult,
    pub violations: u64,
    /// The first piece of evidence, or the reason why the rule is not checked.
    pub first: String,
}

/// Returns the position of a rule. Rules are ordered by number and not by text.
fn place(id: &str) -> u32 {
    id.trim_start_matches(char::is_alphabetic)
        .parse()
        .unwrap_or(u32::MAX)
}

impl History {
    /// Records an evaluation and returns the changed results. A rule that holds at its first
    /// evaluation is no change.
    pub fn record(&mut self, evaluation: &Evaluation, now: Timestamp) -> Vec<Transition> {
        let mut transitions = Vec::new();
        let mut rules = BTreeMap::new();
        for timed in &evaluation.findings {
            let rule = timed.finding.rule;
            let key = (place(rule.id), rule.id);
            let before = self.rules.get(&key);
            let status = status(timed, evaluation.revision, now, before);
            let was = before.map_or(RuleResult::Holds, |before| before.result);
            let at_first = before.is_none() && status.result == RuleResult::NotChecked;
            if status.result != was && !at_first {
                transitions.push(transition(&timed.finding, &status));
            }
            rules.insert(key, status);
        }
        self.rules = rules;
        transitions
    }

    pub fn status(&self) -> Vec<RuleStatus> {
        self.rules.values().cloned().collect()
    }
}

fn status(
    timed: &TimedFinding,
    revision: u64,
    now: Timestamp,
    before: Option<&RuleStatus>,
) -> RuleStatus {
    let finding = &timed.finding;
    let (result, why, violations, evidence) = match &finding.outcome {
        Outcome::Holds => (RuleResult::Holds, None, 0, Vec::new()),
        Outcome::Violated { count, evidence } => {
            (RuleResult::Violated, None, *count, evidence.clone())
        }
        Outcome::NotChecked(why) => (RuleResult::NotChecked, Some(why.clone()), 0, Vec::new()),
    };
    let last_good = before.and_then(|before| before.last_good_at);
    RuleStatus {
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

fn transition(finding: &Finding, status: &RuleStatus) -> Transition {
    let first = status.evidence.first();
    let first = first.map(|it| format!("{}: {}", it.subject, it.detail));
    Transition {
        id: finding.rule.id,
        title: finding.rule.title,
        now: status.result,
        violations: status.violations,
        first: first.or(status.why.clone()).unwrap_or_default(),
    }
}
