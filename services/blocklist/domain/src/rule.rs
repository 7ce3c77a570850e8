//! Strategies (section 7): from the record of a machine to a score, and maybe to the proposal of a
//! block. Pure and quick; what they propose goes through the ordinary add path, past the brakes.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Timestamp};

use crate::block::{Action, STRATEGY};
use crate::fact::{Blame, Fact, What};
use crate::record::{Record, Window};

/// How long the fact of a class, or of slowness, stays worth acting upon.
const AT_ONCE_MS: u64 = 600_000;

/// What a class of causes leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    pub action: Action,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Never blocks.
    None,
    /// So many failures inside the window, from so many distinct works.
    FailureCount {
        failures: u64,
        window_ms: u64,
        jobs: u64,
        duration_ms: u64,
    },
    /// One failure of a class that is listed.
    CauseClass { classes: BTreeMap<String, Class> },
    /// Workers die before they are heard to run.
    StartFailures {
        failures: u64,
        window_ms: u64,
        duration_ms: u64,
    },
    /// The machine loses and regains its heartbeat.
    Flapping {
        flaps: u64,
        window_ms: u64,
        duration_ms: u64,
    },
    /// A task there was found slow; a duration of 0 switches it off.
    SlowTask { duration_ms: u64 },
    /// All of these.
    Chain(Vec<Rule>),
}

/// Where a machine stands by one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Score {
    pub rule: &'static str,
    pub counted: u64,
    pub threshold: u64,
    /// Distinct works among those counted, and how many it takes.
    pub jobs: u64,
    pub jobs_needed: u64,
    pub window_ms: u64,
    /// Present when the threshold is reached.
    pub proposal: Option<Proposal>,
}

/// A block that a rule asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub action: Action,
    pub duration_ms: u64,
    pub cause: String,
    pub source: String,
}

/// Numbers a rule compares with.
struct Bar {
    threshold: u64,
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

    /// Facts older than this count for nothing.
    pub fn longest_window_ms(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::FailureCount { window_ms, .. }
            | Self::StartFailures { window_ms, .. }
            | Self::Flapping { window_ms, .. } => *window_ms,
            Self::CauseClass { .. } | Self::SlowTask { .. } => AT_ONCE_MS,
            Self::Chain(rules) => {
                let windows = rules.iter().map(Self::longest_window_ms);
                windows.max().unwrap_or(0)
            }
        }
    }

    /// Where the machine stands at the time of its newest fact.
    pub fn scores(&self, record: &Record, node: &NodeName, as_of: Timestamp) -> Vec<Score> {
        let window = |ms| Window { end: as_of, ms };
        match self {
            Self::None => Vec::new(),
            Self::Chain(rules) => rules
                .iter()
                .flat_map(|rule| rule.scores(record, node, as_of))
                .collect(),
            Self::FailureCount {
                failures,
                window_ms,
                jobs,
                duration_ms,
            } => {
                let found = record.against(node, window(*window_ms), |_| true);
                let bar = Bar {
                    threshold: *failures,
                    jobs_needed: *jobs,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.counted(&found, &bar, "failures")]
            }
            Self::StartFailures {
                failures,
                window_ms,
                duration_ms,
            } => {
                let found = record.against(node, window(*window_ms), Fact::at_start);
                let bar = Bar {
                    threshold: *failures,
                    jobs_needed: 1,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.counted(&found, &bar, "launches failed")]
            }
            Self::Flapping {
                flaps,
                window_ms,
                duration_ms,
            } => {
                let window = window(*window_ms);
                let regained = |fact: &&Fact| fact.what == What::Heard && live(fact, window);
                let found: Vec<&Fact> = record.of(node).iter().filter(regained).collect();
                let bar = Bar {
                    threshold: *flaps,
                    jobs_needed: 0,
                    window_ms: *window_ms,
                    duration_ms: *duration_ms,
                };
                vec![self.counted(&found, &bar, "losses of the heartbeat")]
            }
            Self::CauseClass { classes } => {
                vec![self.class(record, node, window(AT_ONCE_MS), classes)]
            }
            Self::SlowTask { duration_ms } => {
                vec![self.slow(record, node, window(AT_ONCE_MS), *duration_ms)]
            }
        }
    }

    fn counted(&self, found: &[&Fact], bar: &Bar, what: &str) -> Score {
        let works: BTreeSet<_> = found.iter().filter_map(|fact| fact.work()).collect();
        let (counted, jobs) = (number(found.len()), number(works.len()));
        let met = counted >= bar.threshold && jobs >= bar.jobs_needed;
        // Failures of the machine itself come with no work, and are as good as one of many.
        let met = met || (counted >= bar.threshold && works.is_empty() && bar.jobs_needed <= 1);
        let proposal = met.then(|| Proposal {
            action: Action::Mark,
            duration_ms: bar.duration_ms,
            cause: format!("{counted} {what} in {}", span(bar.window_ms)),
            source: format!("{STRATEGY}{}", self.name()),
        });
        Score {
            rule: self.name(),
            counted,
            threshold: bar.threshold,
            jobs,
            jobs_needed: bar.jobs_needed,
            window_ms: bar.window_ms,
            proposal,
        }
    }

    fn class(
        &self,
        record: &Record,
        node: &NodeName,
        window: Window,
        classes: &BTreeMap<String, Class>,
    ) -> Score {
        let class = |fact: &Fact| {
            let code = fact.attempt.as_ref()?.code.as_deref()?;
            classes.get_key_value(code)
        };
        let found = record.against(node, window, |fact| class(fact).is_some());
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

    fn slow(&self, record: &Record, node: &NodeName, window: Window, duration_ms: u64) -> Score {
        let slow = |fact: &&Fact| fact.what == What::Slow && live(fact, window);
        let found: Vec<&Fact> = record.of(node).iter().filter(slow).collect();
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

fn live(fact: &Fact, window: Window) -> bool {
    !fact.spent && window.holds(fact.at)
}

/// Whether the facts of the machine say anything against it: only such a fact is judged.
pub fn accuses(fact: &Fact) -> bool {
    matches!(fact.what, What::Heard | What::Slow) || fact.blame() != Blame::Nobody
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
