//! Rules of the strategies, which decide when a node is blocked automatically. Each rule computes a
//! score from the facts of a node and may propose a block. A proposed block is added only if the
//! limits on automatic blocks allow it ([`crate::brakes`]).

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Timestamp};

use crate::block::{Action, STRATEGY_PREFIX};
use crate::fact_log::{FactLog, Window};
use crate::node_fact::{Blame, Fact, FactKind};

/// Window of rules that act on a single fact, in milliseconds.
const SINGLE_FACT_WINDOW_MS: u64 = 600_000;

/// Block that a failure of one cause class leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassPolicy {
    pub action: Action,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Never blocks.
    None,
    /// Blocks after `failures` failures within the window, from at least `jobs` distinct jobs.
    FailureCount {
        failures: u64,
        window_ms: u64,
        jobs: u64,
        duration_ms: u64,
    },
    /// Blocks after one failure of a listed cause class.
    CauseClass {
        classes: BTreeMap<String, ClassPolicy>,
    },
    /// Blocks after `failures` attempts within the window that failed before they were reported as
    /// running.
    StartFailures {
        failures: u64,
        window_ms: u64,
        duration_ms: u64,
    },
    /// Blocks after the node lost contact and regained it `flaps` times within the window.
    Flapping {
        flaps: u64,
        window_ms: u64,
        duration_ms: u64,
    },
    /// Blocks after one slow task on the node. A duration of 0 disables the rule.
    SlowTask { duration_ms: u64 },
    /// Applies several rules, each of which may propose a block.
    Chain(Vec<Rule>),
}

/// Score of a node under one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Score {
    pub rule: &'static str,
    /// Number of facts that count.
    pub fact_count: u64,
    pub threshold: u64,
    /// Number of distinct works among these facts.
    pub jobs: u64,
    /// Number of distinct works that the rule requires.
    pub jobs_needed: u64,
    pub window_ms: u64,
    /// `None` if the threshold is not reached.
    pub proposal: Option<Proposal>,
}

/// A block that a rule proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub action: Action,
    pub duration_ms: u64,
    pub cause: String,
    pub source: String,
}

/// Parameters of a rule that counts facts.
struct Threshold {
    count: u64,
    jobs_needed: u64,
    window_ms: u64,
    duration_ms: u64,
}

impl Rule {
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::FailureCount { .. } => "failure-count",
            Self::CauseClass { .. } => "cause-class",
            Self::StartFailures { .. } => "start-failures",
            Self::Flapping { .. } => "flapping",
            Self::SlowTask { .. } => "slow-task",
            Self::Chain(_) => "chain",
        }
    }

    /// Returns the longest time in milliseconds for which a fact counts.
    pub fn longest_window_ms(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::FailureCount { window_ms, .. }
            | Self::StartFailures { window_ms, .. }
            | Self::Flapping { window_ms, .. } => *window_ms,
            Self::CauseClass { .. } | Self::SlowTask { .. } => SINGLE_FACT_WINDOW_MS,
            Self::Chain(rules) => {
                let windows = rules.iter().map(Self::longest_window_ms);
                windows.max().unwrap_or(0)
            }
        }
    }

    /// Returns the scores of a node, one for each rule of a chain. Windows end at `as_of`, the time
    /// of the newest fact.
    pub fn scores(&self, fact_log: &FactLog, node: &NodeName, as_of: Timestamp) -> Vec<Score> {
        let window = |ms| Window { end: as_of, ms };
        match self {
            Self::None => Vec::new(),
            Self::Chain(rules) => rules
                .iter()
                .flat_map(|rule| rule.scores(fact_log, node, as_of))
                .collect(),
            Self::FailureCount {
                failures,
                window_ms,
                jobs,
                duration_ms,
            } => {
                let facts = fact_log.failures_against(node, window(*window_ms), |_| true);
                let threshold = Threshold {
                    count: *failures,
                    jobs_needed: *jobs,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.score_by_count(&facts, &threshold, "failures")]
            }
            Self::StartFailures {
                failures,
                window_ms,
                duration_ms,
            } => {
                let facts =
                    fact_log.failures_against(node, window(*window_ms), Fact::failed_at_start);
                let threshold = Threshold {
                    count: *failures,
                    jobs_needed: 1,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.score_by_count(&facts, &threshold, "launches failed")]
            }
            Self::Flapping {
                flaps,
                window_ms,
                duration_ms,
            } => {
                let threshold = Threshold {
                    count: *flaps,
                    jobs_needed: 0,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.score_flapping(fact_log, node, window(*window_ms), &threshold)]
            }
            Self::CauseClass { classes } => {
                vec![self.score_cause_class(fact_log, node, window(SINGLE_FACT_WINDOW_MS), classes)]
            }
            Self::SlowTask { duration_ms } => {
                let window = window(SINGLE_FACT_WINDOW_MS);
                vec![self.score_slow_task(fact_log, node, window, *duration_ms)]
            }
        }
    }

    /// Returns the score of the losses of contact that ended within the window.
    fn score_flapping(
        &self,
        fact_log: &FactLog,
        node: &NodeName,
        window: Window,
        threshold: &Threshold,
    ) -> Score {
        let is_regained = |fact: &&Fact| fact.kind == FactKind::Contact && is_current(fact, window);
        let facts = fact_log.facts(node).iter();
        let regained: Vec<&Fact> = facts.filter(is_regained).collect();
        self.score_by_count(&regained, threshold, "losses of the heartbeat")
    }

    /// Returns the score of a rule that counts facts. `noun` names the facts in the cause of the
    /// block.
    fn score_by_count(&self, facts: &[&Fact], threshold: &Threshold, noun: &str) -> Score {
        let works: BTreeSet<_> = facts.iter().filter_map(|fact| fact.work()).collect();
        let (fact_count, jobs) = (to_u64(facts.len()), to_u64(works.len()));
        // Facts about the node itself have no work. They satisfy a requirement of one job.
        let has_enough_jobs =
            jobs >= threshold.jobs_needed || (works.is_empty() && threshold.jobs_needed <= 1);
        let is_reached = fact_count >= threshold.count && has_enough_jobs;
        let proposal = is_reached.then(|| Proposal {
            action: Action::Mark,
            duration_ms: threshold.duration_ms,
            cause: format!(
                "{fact_count} {noun} in {}",
                format_duration(threshold.window_ms)
            ),
            source: format!("{STRATEGY_PREFIX}{}", self.name()),
        });
        Score {
            rule: self.name(),
            fact_count,
            threshold: threshold.count,
            jobs,
            jobs_needed: threshold.jobs_needed,
            window_ms: threshold.window_ms,
            proposal,
        }
    }

    /// Returns the score of the rule `CauseClass`.
    fn score_cause_class(
        &self,
        fact_log: &FactLog,
        node: &NodeName,
        window: Window,
        classes: &BTreeMap<String, ClassPolicy>,
    ) -> Score {
        let find_policy = |fact: &Fact| {
            let cause_class = fact.attempt.as_ref()?.cause_class.as_deref()?;
            classes.get_key_value(cause_class)
        };
        let failures = fact_log.failures_against(node, window, |fact| find_policy(fact).is_some());
        let policies: BTreeMap<_, _> = failures
            .iter()
            .filter_map(|fact| find_policy(fact))
            .collect();
        let action = policies.values().map(|policy| policy.action).max();
        let longest_ms = policies.values().map(|policy| policy.duration_ms).max();
        let names: Vec<&str> = policies.keys().map(|name| name.as_str()).collect();
        let proposal = action
            .zip(longest_ms)
            .map(|(action, duration_ms)| Proposal {
                action,
                duration_ms,
                cause: names.join(", "),
                source: format!("{STRATEGY_PREFIX}{}", self.name()),
            });
        self.score_single_fact(&failures, window, proposal)
    }

    /// Returns the score of the rule `SlowTask`.
    fn score_slow_task(
        &self,
        fact_log: &FactLog,
        node: &NodeName,
        window: Window,
        duration_ms: u64,
    ) -> Score {
        let is_slow = |fact: &&Fact| fact.kind == FactKind::Slow && is_current(fact, window);
        let slow_tasks: Vec<&Fact> = fact_log.facts(node).iter().filter(is_slow).collect();
        let work = slow_tasks.last().and_then(|fact| fact.work());
        let proposal = work.filter(|_| duration_ms > 0).map(|work| Proposal {
            action: Action::Mark,
            duration_ms,
            cause: format!("tasks of {work} are slow on this node"),
            source: format!("{}:{work}", self.name()),
        });
        self.score_single_fact(&slow_tasks, window, proposal)
    }

    /// Returns the score of a rule that blocks after a single fact.
    fn score_single_fact(
        &self,
        facts: &[&Fact],
        window: Window,
        proposal: Option<Proposal>,
    ) -> Score {
        let works: BTreeSet<_> = facts.iter().filter_map(|fact| fact.work()).collect();
        Score {
            rule: self.name(),
            fact_count: to_u64(facts.len()),
            threshold: 1,
            jobs: to_u64(works.len()),
            jobs_needed: 0,
            window_ms: window.ms,
            proposal: proposal.filter(|proposal| proposal.duration_ms > 0),
        }
    }
}

/// Returns whether a fact is in the window and not spent.
fn is_current(fact: &Fact, window: Window) -> bool {
    !fact.spent && window.contains(fact.at)
}

/// Returns whether the fact can raise a score of its node, so that the node must be evaluated.
pub fn can_count_against_node(fact: &Fact) -> bool {
    matches!(fact.kind, FactKind::Contact | FactKind::Slow) || fact.blame() != Blame::None
}

fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Formats a duration, for example as `10 min` or `90 s`.
fn format_duration(ms: u64) -> String {
    match ms / 1000 {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        0 => format!("{ms} ms"),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests;
