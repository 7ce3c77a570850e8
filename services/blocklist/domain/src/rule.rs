//! Strategies: each computes a score from the facts of a node and may propose a block. A proposal
//! is added like any other block and must pass the brakes.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Timestamp};

use crate::block::{Action, STRATEGY};
use crate::fact::{Blame, Fact, NodeFact};
use crate::fact_log::{FactLog, Window};

/// Window of rules that act on a single fact, in milliseconds.
const SINGLE_FACT_WINDOW_MS: u64 = 600_000;

/// Block that a cause class leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    pub action: Action,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Never blocks.
    None,
    /// `failures` failures within the window, from `jobs` distinct jobs.
    FailureCount {
        failures: u64,
        window_ms: u64,
        jobs: u64,
        duration_ms: u64,
    },
    /// One failure of a listed class.
    CauseClass { classes: BTreeMap<String, Class> },
    /// `failures` workers that died before they were reported as running.
    StartFailures {
        failures: u64,
        window_ms: u64,
        duration_ms: u64,
    },
    /// The node lost and resumed its heartbeat `flaps` times.
    Flapping {
        flaps: u64,
        window_ms: u64,
        duration_ms: u64,
    },
    /// A task on the node was slow; a duration of 0 disables the rule.
    SlowTask { duration_ms: u64 },
    /// Union of several rules.
    Chain(Vec<Rule>),
}

/// Score of a node under one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Score {
    pub rule: &'static str,
    pub counted: u64,
    pub threshold: u64,
    /// Distinct works among the counted facts.
    pub jobs: u64,
    /// Distinct works that the rule requires.
    pub jobs_needed: u64,
    pub window_ms: u64,
    /// Present when the threshold is reached.
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

/// Limits of a counting rule.
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

    /// Milliseconds after which a fact no longer counts.
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

    /// Scores of the node at the time of the newest fact.
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
                let found = fact_log.against(node, window(*window_ms), |_| true);
                let threshold = Threshold {
                    count: *failures,
                    jobs_needed: *jobs,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.counted(&found, &threshold, "failures")]
            }
            Self::StartFailures {
                failures,
                window_ms,
                duration_ms,
            } => {
                let found = fact_log.against(node, window(*window_ms), Fact::at_start);
                let threshold = Threshold {
                    count: *failures,
                    jobs_needed: 1,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.counted(&found, &threshold, "launches failed")]
            }
            Self::Flapping {
                flaps,
                window_ms,
                duration_ms,
            } => {
                let found = contacts(fact_log, node, window(*window_ms));
                let threshold = Threshold {
                    count: *flaps,
                    jobs_needed: 0,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.counted(&found, &threshold, "losses of the heartbeat")]
            }
            Self::CauseClass { classes } => {
                vec![self.class(fact_log, node, window(SINGLE_FACT_WINDOW_MS), classes)]
            }
            Self::SlowTask { duration_ms } => {
                vec![self.slow(fact_log, node, window(SINGLE_FACT_WINDOW_MS), *duration_ms)]
            }
        }
    }

    fn counted(&self, found: &[&Fact], threshold: &Threshold, what: &str) -> Score {
        let works: BTreeSet<_> = found.iter().filter_map(|fact| fact.work()).collect();
        let (counted, jobs) = (number(found.len()), number(works.len()));
        let met = counted >= threshold.count && jobs >= threshold.jobs_needed;
        // Facts about the node itself name no work. They satisfy a requirement of one job.
        let met =
            met || (counted >= threshold.count && works.is_empty() && threshold.jobs_needed <= 1);
        let proposal = met.then(|| Proposal {
            action: Action::Mark,
            duration_ms: threshold.duration_ms,
            cause: format!("{counted} {what} in {}", span(threshold.window_ms)),
            source: format!("{STRATEGY}{}", self.name()),
        });
        Score {
            rule: self.name(),
            counted,
            threshold: threshold.count,
            jobs,
            jobs_needed: threshold.jobs_needed,
            window_ms: threshold.window_ms,
            proposal,
        }
    }

    fn class(
        &self,
        fact_log: &FactLog,
        node: &NodeName,
        window: Window,
        classes: &BTreeMap<String, Class>,
    ) -> Score {
        let class = |fact: &Fact| {
            let code = fact.attempt.as_ref()?.code.as_deref()?;
            classes.get_key_value(code)
        };
        let found = fact_log.against(node, window, |fact| class(fact).is_some());
        let hit: BTreeMap<_, _> = found.iter().filter_map(|fact| class(fact)).collect();
        let action = hit.values().map(|class| class.action).max();
        let longest = hit.values().map(|class| class.duration_ms).max();
        let names: Vec<&str> = hit.keys().map(|name| name.as_str()).collect();
        let proposal = action.zip(longest).map(|(action, duration_ms)| Proposal {
            action,
            duration_ms,
            cause: names.join(", "),
            source: format!("{STRATEGY}{}", self.name()),
        });
        self.at_once(&found, window, proposal)
    }

    fn slow(&self, fact_log: &FactLog, node: &NodeName, window: Window, duration_ms: u64) -> Score {
        let slow = |fact: &&Fact| fact.kind == NodeFact::Slow && live(fact, window);
        let found: Vec<&Fact> = fact_log.facts(node).iter().filter(slow).collect();
        let work = found.last().and_then(|fact| fact.work());
        let proposal = work.filter(|_| duration_ms > 0).map(|work| Proposal {
            action: Action::Mark,
            duration_ms,
            cause: format!("tasks of {work} are slow there"),
            source: format!("{}:{work}", self.name()),
        });
        self.at_once(&found, window, proposal)
    }

    fn at_once(&self, found: &[&Fact], window: Window, proposal: Option<Proposal>) -> Score {
        let works: BTreeSet<_> = found.iter().filter_map(|fact| fact.work()).collect();
        Score {
            rule: self.name(),
            counted: number(found.len()),
            threshold: 1,
            jobs: number(works.len()),
            jobs_needed: 0,
            window_ms: window.ms,
            proposal: proposal.filter(|proposal| proposal.duration_ms > 0),
        }
    }
}

/// Facts that the contact to the node was regained.
fn contacts<'a>(fact_log: &'a FactLog, node: &NodeName, window: Window) -> Vec<&'a Fact> {
    let regained = |fact: &&Fact| fact.kind == NodeFact::Contact && live(fact, window);
    fact_log.facts(node).iter().filter(regained).collect()
}

fn live(fact: &Fact, window: Window) -> bool {
    !fact.spent && window.contains(fact.at)
}

/// True when the fact can count against the node; only then the node is evaluated.
pub fn speaks_against_node(fact: &Fact) -> bool {
    matches!(fact.kind, NodeFact::Contact | NodeFact::Slow) || fact.blame() != Blame::None
}

fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// `10 min`, `90 s`.
fn span(ms: u64) -> String {
    match ms / 1000 {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        0 => format!("{ms} ms"),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests;
