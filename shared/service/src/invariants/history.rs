//! Results of the last evaluation and their changes. The code is pure.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use hayward_vocabulary::invariant_finding::{Finding, Outcome};

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
    pub result: RuleResult,
    pub violations: u64,
    /// The first piece of evidence, or the reason why the rule is not checked.
    pub detail: String,
}

/// Returns the number in the id of a rule. Rules are ordered by this number and not by text.
fn rule_number(id: &str) -> u32 {
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
            let key = (rule_number(rule.id), rule.id);
            let previous = self.rules.get(&key);
            let status = new_status(timed, evaluation.revision, now, previous);
            let previous_result = previous.map_or(RuleResult::Holds, |previous| previous.result);
            let unchecked_at_first = previous.is_none() && status.result == RuleResult::NotChecked;
            if status.result != previous_result && !unchecked_at_first {
                transitions.push(new_transition(&timed.finding, &status));
            }
            rules.insert(key, status);
        }
        self.rules = rules;
        transitions
    }

    /// Returns the last result of each rule, in order of number.
    pub fn status(&self) -> Vec<RuleStatus> {
        self.rules.values().cloned().collect()
    }
}

fn new_status(
    timed: &TimedFinding,
    revision: u64,
    now: Timestamp,
    previous: Option<&RuleStatus>,
) -> RuleStatus {
    let finding = &timed.finding;
    let (result, why, violations, evidence) = match &finding.outcome {
        Outcome::Holds => (RuleResult::Holds, None, 0, Vec::new()),
        Outcome::Violated { count, evidence } => {
            (RuleResult::Violated, None, *count, evidence.clone())
        }
        Outcome::NotChecked(why) => (RuleResult::NotChecked, Some(why.clone()), 0, Vec::new()),
    };
    let last_good = previous.and_then(|previous| previous.last_good_at);
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

fn new_transition(finding: &Finding, status: &RuleStatus) -> Transition {
    let first_evidence = status.evidence.first();
    let first_evidence = first_evidence.map(|it| format!("{}: {}", it.subject, it.detail));
    Transition {
        id: finding.rule.id,
        title: finding.rule.title,
        result: status.result,
        violations: status.violations,
        detail: first_evidence.or(status.why.clone()).unwrap_or_default(),
    }
}
