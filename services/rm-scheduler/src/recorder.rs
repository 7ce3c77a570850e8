//! Records the inputs and the plan of each round, so that any of them can be replayed.
//!
//! For a round that changed something, the recorder stores its exact [`Snapshot`] and its complete
//! [`Plan`], before anything is dropped from the plan. Rounds form *chains*: the first round is
//! written as a whole, and each later round as a delta. The cost of a round therefore grows with
//! its changes. A new chain begins with a new term, with a new policy, and when the deltas have
//! become as large as the first round. This limits the cost of writing and of reading. If the
//! stored rounds exceed the limits, the oldest chains are deleted.
//!
//! The planner reports which verdicts and shares changed, so this module compares no plans.
//!
//! A document is deflated JSON of ordered maps, so equal rounds give equal bytes. Encoding runs on
//! a thread of its own while the other rows of the transaction are written.

mod plan_diff;

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use hayward_rm_scheduler_domain::{Decision, Plan, Snapshot};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::InputLimits;
use crate::tracked_snapshot::{Delta, TrackedSnapshot};
pub use plan_diff::{PlanDiff, WorkChanges};

/// Maximum number of rounds of a chain. To read the last round, all rounds of its chain are read.
const MAX_CHAIN_ROUNDS: u64 = 64;
/// A chain takes at most 1/N of the allowed bytes, where N is this number. Other chains therefore
/// remain when the oldest one is deleted.
const CHAIN_BYTES_DIVISOR: u64 = 4;

/// Decides for each round whether its inputs are recorded.
pub struct Recorder {
    limits: InputLimits,
    /// Number of the first round of the chain. `None` if the next round begins a chain.
    chain: Option<u64>,
    /// Changes since the newest recorded round of the chain.
    changes: WorkChanges,
    /// Size of the chain. The bytes of a round are known only after it has been encoded.
    chain_size: Arc<Mutex<ChainSize>>,
    /// Number of rounds that are not recorded before another chain is tried.
    rounds_to_skip: u64,
}

#[derive(Debug, Default)]
struct ChainSize {
    rounds: u64,
    first_bytes: u64,
    later_bytes: u64,
    /// True if a round of the chain could not be stored. Later rounds of the chain depend on it.
    broken: bool,
    /// True if the first round of the chain could not be stored. The next chain would fail too.
    first_round_failed: bool,
}

/// One round that is to be encoded and written.
#[derive(Debug)]
pub struct UnwrittenRound {
    pub round: u64,
    /// Number of the first round of its chain.
    pub base: u64,
    pub limits: InputLimits,
    document: RoundDocument,
    chain_size: Arc<Mutex<ChainSize>>,
}

/// An encoded round.
#[derive(Default)]
pub struct Encoded {
    /// Encoded document. `None` if the limits do not allow it.
    pub body: Option<Vec<u8>>,
    pub bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct RoundDocument {
    snapshot: Delta,
    plan: PlanDiff,
}

impl Recorder {
    pub fn new(limits: InputLimits) -> Self {
        Self {
            limits,
            chain: None,
            changes: WorkChanges::default(),
            chain_size: Arc::default(),
            rounds_to_skip: 0,
        }
    }

    /// Adds the changes of a round, whether the round is recorded or not.
    pub fn observe(&mut self, decided: &Decision) {
        match &decided.shares {
            Some(shares) if self.chain_continues() => self.changes.add(decided, shares),
            // The next recorded round is written as a whole.
            _ => self.end_chain(),
        }
    }

    /// Returns true if the next round can be added to the chain. A chain also ends if the changes
    /// since its last round are as many as the entries that a whole snapshot may have.
    fn chain_continues(&self) -> bool {
        let changes = self.changes.changed_work_count() as u64;
        self.chain.is_some() && changes <= self.limits.entries && !self.chain_size.lock().is_full()
    }

    fn end_chain(&mut self) {
        self.chain = None;
        self.changes = WorkChanges::default();
    }

    /// Takes the changes of the snapshot, before the plan is carried out.
    ///
    /// # Errors
    ///
    /// Returns a sentence that explains why the round cannot be recorded.
    pub fn take_delta(&mut self, snapshot: &mut TrackedSnapshot) -> Result<Delta, String> {
        if let Some(why) = self.reason_to_skip(snapshot) {
            self.end_chain();
            snapshot.mark_all_changed();
            return Err(why);
        }
        let starts_chain = self.chain.is_none() || self.chain_size.lock().is_full();
        Ok(snapshot.take_unrecorded(starts_chain))
    }

    /// Returns the reason why this round is not recorded. Returns `None` if it is recorded.
    fn reason_to_skip(&mut self, snapshot: &Snapshot) -> Option<String> {
        if self.limits.rounds == 0 {
            return Some("inputs_rounds is 0".to_owned());
        }
        let entries = snapshot.nodes.len() + snapshot.demand.len() + snapshot.allocations.len();
        let max_entries = self.limits.entries;
        if entries as u64 > max_entries {
            let detail =
                format!("the snapshot has {entries} entries; inputs_entries allows {max_entries}");
            return Some(detail);
        }
        if std::mem::take(&mut self.chain_size.lock().first_round_failed) {
            self.rounds_to_skip = MAX_CHAIN_ROUNDS;
        }
        self.rounds_to_skip = self.rounds_to_skip.checked_sub(1)?;
        Some("an earlier round was too large to keep; it is tried again later".to_owned())
    }

    /// Records a round that changed something. `plan` is the plan as [`PlanDiff::without_work`]
    /// returned it. `all` returns verdicts and shares of all work, for the first round of a chain.
    pub fn record(
        &mut self,
        round: u64,
        snapshot: Delta,
        plan: Plan,
        all: impl FnOnce() -> WorkChanges,
    ) -> UnwrittenRound {
        let continued = self.chain.filter(|_| !snapshot.is_whole());
        let changes = std::mem::take(&mut self.changes);
        let (base, changes) = match continued {
            Some(base) => (base, changes),
            None => (round, all()),
        };
        if continued.is_none() {
            self.chain_size = Arc::default();
        }
        self.chain = Some(base);
        UnwrittenRound {
            round,
            base,
            limits: self.limits,
            document: RoundDocument {
                snapshot,
                plan: PlanDiff::new(plan, changes),
            },
            chain_size: self.chain_size.clone(),
        }
    }
}

impl ChainSize {
    /// Returns true if no further round can be added to the chain.
    fn is_full(&self) -> bool {
        self.broken || self.rounds >= MAX_CHAIN_ROUNDS || self.later_bytes > self.first_bytes
    }

    /// Ends the chain, because a round of it could not be stored.
    fn give_up(&mut self, is_first_round: bool) {
        self.broken = true;
        self.first_round_failed = is_first_round;
    }
}

impl UnwrittenRound {
    pub fn is_first_of_chain(&self) -> bool {
        self.round == self.base
    }

    /// Returns a function that gives up the chain. The store calls this function if encoding takes
    /// too long.
    pub fn chain_canceller(&self) -> impl FnOnce() + Send + 'static {
        let (chain_size, is_first) = (self.chain_size.clone(), self.is_first_of_chain());
        move || chain_size.lock().give_up(is_first)
    }

    /// Returns the maximum number of rounds, and of bytes, of all earlier chains together.
    pub fn limits_of_earlier_chains(&self) -> (u64, u64) {
        let InputLimits { rounds, bytes, .. } = self.limits;
        (
            rounds.saturating_sub(MAX_CHAIN_ROUNDS),
            bytes - bytes / CHAIN_BYTES_DIVISOR,
        )
    }

    /// Encodes the round.
    ///
    /// # Errors
    ///
    /// Fails if a type of this crate cannot be written as JSON, which is a defect.
    pub fn encode(self) -> Result<Encoded, serde_json::Error> {
        let is_first = self.is_first_of_chain();
        let body = deflate(&serde_json::to_vec(&self.document)?);
        let bytes = body.len() as u64;
        let mut chain_size = self.chain_size.lock();
        chain_size.rounds += 1;
        if is_first {
            chain_size.first_bytes = bytes;
        } else {
            chain_size.later_bytes += bytes;
        }
        let max_chain_bytes = self.limits.bytes / CHAIN_BYTES_DIVISOR;
        if chain_size.first_bytes + chain_size.later_bytes > max_chain_bytes {
            chain_size.give_up(is_first);
            tracing::warn!(
                round = self.round,
                bytes,
                most = max_chain_bytes,
                "too large to keep for a replay"
            );
        }
        Ok(Encoded {
            // The chain may have been given up in the meantime.
            body: (!chain_size.broken).then_some(body),
            bytes,
        })
    }
}

fn deflate(json: &[u8]) -> Vec<u8> {
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector cannot fail.
    let _ = deflated.write_all(json);
    deflated.finish().unwrap_or_default()
}

/// Why a recorded round cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the recorded bytes are damaged")]
    Bytes(#[from] std::io::Error),
    #[error("the recorded round is of another version")]
    Json(#[from] serde_json::Error),
}

/// Returns snapshot and plan of the last round of a chain, from all its bodies in order.
///
/// # Errors
///
/// Fails if a body is damaged or was written by another version.
pub fn decode<B: AsRef<[u8]>>(
    chain: impl IntoIterator<Item = B>,
) -> Result<(Snapshot, Plan), Unreadable> {
    let mut snapshot = Snapshot::empty();
    let mut plan = Plan::default();
    for body in chain {
        let mut json = Vec::new();
        DeflateDecoder::new(body.as_ref()).read_to_end(&mut json)?;
        let document: RoundDocument = serde_json::from_slice(&json)?;
        document.snapshot.apply(&mut snapshot);
        document.plan.apply(&mut plan);
    }
    Ok((snapshot, plan))
}

#[cfg(test)]
mod tests;
