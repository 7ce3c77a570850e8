//! Looks at the fleet for those who reckon on a copy of it: what-if, and who reads a kept round.
//!
//! A look is a copy that the round's own thread has to make, so looks are rationed: at most one
//! part in [`LOOKS_TAKE_ONE_IN`] of the time. Who asks more often is answered from the last look,
//! and told its revision; only a look under another policy is always fresh. What follows runs on a
//! thread of its own, one such question at a time, and stops when it takes too long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_domain::Snapshot;
use hayward_rm_scheduler_policy::Rules;
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{NodeName, WorkId};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::http::Api;
use crate::policy::{self, Fault};
use crate::working_set::{Command, Context, Ledger};

/// Forecasts and readings at the same time: they take a whole processor each.
const THINKING: usize = 1;
/// How long one waits for its turn.
const TURN: Duration = Duration::from_secs(3);
/// No forecast begins another round after this; it says how far it went.
const PATIENCE: Duration = Duration::from_secs(5);
/// The part of the time that looks take at most.
const LOOKS_TAKE_ONE_IN: u32 = 20;

/// A policy that somebody asks about.
#[derive(Debug, Clone)]
pub struct Asked {
    pub policy: Policy,
    /// Its classes may leave out some that work is in.
    pub drop_classes: bool,
}

/// The fleet as it would be under another policy.
#[derive(Debug, Clone)]
pub struct Under {
    pub snapshot: Snapshot,
    pub rules: Arc<Rules>,
}

/// A copy of the fleet at one moment.
#[derive(Debug, Clone)]
pub struct Look {
    pub snapshot: Arc<Snapshot>,
    /// By what nodes come into pools.
    pub rules: Arc<Rules>,
    /// Under the policy that was asked for, or what is wrong with that.
    pub under: Option<Result<Under, Vec<Fault>>>,
    /// The neighbour that is not heard.
    pub silent: Option<&'static str>,
    /// What is wanted on one host as long as that can be had.
    pub pinned: Arc<Vec<Pinned>>,
}

/// A process that is kept where it is, and the machines it may use once it has to leave (none
/// means any).
#[derive(Debug, Clone)]
pub struct Pinned {
    pub work: WorkId,
    pub host: NodeName,
    pub machines: BTreeSet<NodeName>,
}

pub struct Looks {
    thinking: Arc<Semaphore>,
    last: Mutex<Option<Last>>,
}

#[derive(Clone)]
struct Last {
    look: Look,
    revision: u64,
    taken: Instant,
    cost: Duration,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            thinking: Arc::new(Semaphore::new(THINKING)),
            last: Mutex::default(),
        }
    }
}

impl Context {
    /// A place among the few that may think at the same time.
    pub async fn thinking(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = self.looks.thinking.clone().acquire_owned();
        let turn = tokio::time::timeout(TURN, turn).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            let detail = "others who ask for a forecast or a kept round are being answered";
            Problem::new(Code::TooManyRequests, detail)
        })
    }
}

impl Api {
    /// The fleet as it is, and as it would be under another policy; with its revision.
    pub async fn look(&self, asked: Option<Asked>) -> Result<(Look, u64), Problem> {
        let mut last = self.context.looks.last.lock().await;
        let fresh = |last: &&Last| last.taken.elapsed() < last.cost * LOOKS_TAKE_ONE_IN;
        if let Some(known) = last.as_ref().filter(fresh).filter(|_| asked.is_none()) {
            return Ok((known.look.clone(), known.revision));
        }
        let asked = asked.map(Box::new);
        let answer = self.handle.ask(|reply| Command::Look(asked, reply)).await?;
        let Some((look, cost)) = answer.value else {
            let detail = "the scheduler has not heard from all its neighbours yet";
            return Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1_000));
        };
        // What cost nothing need not be kept.
        *last = (!cost.is_zero()).then(|| Last {
            look: Look {
                under: None,
                ..look.clone()
            },
            revision: answer.revision,
            taken: Instant::now(),
            cost,
        });
        Ok((look, answer.revision))
    }
}

/// Goes on for so many rounds, as long as there is time.
pub fn patiently(rounds: u64) -> impl FnMut(u64) -> bool {
    let started = Instant::now();
    move |planned| planned < rounds && (planned == 0 || started.elapsed() < PATIENCE)
}

/// How long something takes, in whole milliseconds: what takes less costs nothing.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let made = work();
    let cost = Duration::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(0));
    (made, cost)
}

impl Look {
    pub fn of(snapshot: &Snapshot, rules: Arc<Rules>) -> Self {
        Self {
            snapshot: Arc::new(snapshot.clone()),
            rules,
            under: None,
            silent: None,
            pinned: Arc::default(),
        }
    }
}

impl Ledger {
    pub(crate) fn look(&self, asked: Option<&Asked>) -> Look {
        let under = asked.map(|asked| {
            let faults = policy::faults(&asked.policy, &self.in_use(asked.drop_classes));
            if faults.is_empty() {
                let rules = Arc::new(Rules::of(&asked.policy));
                Ok(Under {
                    snapshot: self.under(&rules),
                    rules,
                })
            } else {
                Err(faults)
            }
        });
        Look {
            under,
            silent: self.silent,
            pinned: Arc::new(self.pinned()),
            ..Look::of(&self.snapshot, self.rules.clone())
        }
    }

    fn pinned(&self) -> Vec<Pinned> {
        let all = self.demand.iter().filter_map(|(_, entry)| {
            Some(Pinned {
                work: entry.work.clone(),
                host: entry.host.clone()?,
                machines: entry.machines.iter().cloned().collect(),
            })
        });
        all.collect()
    }

    /// The fleet as it would be under another policy.
    pub(crate) fn under(&self, rules: &Rules) -> Snapshot {
        let mut snapshot = Snapshot::clone(&self.snapshot);
        rules.write(&mut snapshot);
        self.keep_draining(&mut snapshot);
        snapshot.tunables.cycle_ms = self.context.settings.round_max_ms;
        for (_, entry) in self.nodes.iter() {
            let node = self.seen(entry, (&snapshot, rules));
            snapshot.nodes.insert(entry.node.clone(), node);
        }
        snapshot
    }
}
