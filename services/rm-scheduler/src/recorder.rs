//! Records the inputs and the plan of each round, so that any of them can be replayed.
//!
//! For a round that changed something, the recorder stores its exact [`Snapshot`] and its complete
//! [`Plan`], before anything is dropped from it. Rounds form *chains*: the first is written as a
//! whole, and each later one as a delta. The cost of a round therefore grows with its changes. A
//! new chain begins with a term, with a policy, and when the deltas have become as large as the
//! first round. This limits the cost of writing and of reading. Whole chains are dropped at the
//! limits.
//!
//! The planner reports which verdicts and shares changed, so no plans are compared.
//!
//! A document is deflated JSON of ordered maps, so equal rounds give equal bytes. Encoding runs on
//! a thread of its own while the other rows of the transaction are written.

mod plan_diff;

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use hayward_rm_scheduler_domain::{Decided, Plan, Snapshot};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::InputLimits;
use crate::tracked_snapshot::{Delta, TrackedSnapshot};
pub use plan_diff::{PlanDiff, WorkChanges};

/// Most rounds of one chain. Reading the last round reads all of them.
const CHAIN: u64 = 64;
/// A chain takes at most 1/N of the bytes, where N is this number. Dropping a chain leaves others.
const CHAIN_TAKES_ONE_IN: u64 = 4;

/// Decides for each round whether its inputs are recorded.
pub struct Recorder {
    limits: InputLimits,
    /// Number of the first round of the chain. `None` if the next round begins a chain.
    chain: Option<u64>,
    /// Changes since the newest recorded round of the chain.
    changes: WorkChanges,
    /// Size of the chain. Its lengths are known only after a round has been encoded.
    length: Arc<Mutex<Length>>,
    /// Number of rounds to skip before another chain is tried.
    rest: u64,
}

#[derive(Debug, Default)]
struct Length {
    rounds: u64,
    first_bytes: u64,
    later_bytes: u64,
    /// True if one of its rounds could not be stored. No later round can be stored either.
    broken: bool,
    /// True if its first round could not be stored. The next chain would fail too.
    hopeless: bool,
}

/// One round that is to be encoded and written.
#[derive(Debug)]
pub struct Unwritten {
    pub round: u64,
    /// Number of the first round of its chain.
    pub base: u64,
    pub limits: InputLimits,
    words: RoundDocument,
    length: Arc<Mutex<Length>>,
}

/// One round, encoded.
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
            length: Arc::default(),
            rest: 0,
        }
    }

    /// Adds the changes of a round, whether the round is recorded or not.
    pub fn observe(&mut self, decided: &Decided) {
        match &decided.shares {
            Some(shares) if self.chain_continues() => self.changes.add(decided, shares),
            // The next recorded round is written as a whole.
            _ => self.end_chain(),
        }
    }

    /// Returns true while the chain may go on and its changes stay below the limit of a snapshot.
    fn chain_continues(&self) -> bool {
        let changes = self.changes.pieces_of_work() as u64;
        self.chain.is_some() && changes <= self.limits.entries && !self.length.lock().ended()
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
        let ended = self.chain.is_none() || self.length.lock().ended();
        Ok(snapshot.written(ended))
    }

    fn reason_to_skip(&mut self, snapshot: &Snapshot) -> Option<String> {
        if self.limits.rounds == 0 {
            return Some("inputs_rounds is 0".to_owned());
        }
        let entries = snapshot.nodes.len() + snapshot.demand.len() + snapshot.allocations.len();
        let most = self.limits.entries;
        if entries as u64 > most {
            let detail =
                format!("the snapshot has {entries} entries; inputs_entries allows {most}");
            return Some(detail);
        }
        if std::mem::take(&mut self.length.lock().hopeless) {
            self.rest = CHAIN;
        }
        self.rest = self.rest.checked_sub(1)?;
        Some("an earlier round was too large to keep; it is tried again later".to_owned())
    }

    /// Records a round that changed something. `rest` is the plan as [`PlanDiff::rest_of`] returned
    /// it. `all` returns verdicts and shares of all work, for the first round of a chain.
    pub fn record(
        &mut self,
        round: u64,
        snapshot: Delta,
        rest: Plan,
        all: impl FnOnce() -> WorkChanges,
    ) -> Unwritten {
        let known = self.chain.filter(|_| !snapshot.is_whole());
        let changes = std::mem::take(&mut self.changes);
        let (base, changes) = match known {
            Some(base) => (base, changes),
            None => (round, all()),
        };
        if known.is_none() {
            self.length = Arc::default();
        }
        self.chain = Some(base);
        Unwritten {
            round,
            base,
            limits: self.limits,
            words: RoundDocument {
                snapshot,
                plan: PlanDiff::new(rest, changes),
            },
            length: self.length.clone(),
        }
    }
}

impl Length {
    fn ended(&self) -> bool {
        self.broken || self.rounds >= CHAIN || self.later_bytes > self.first_bytes
    }

    fn give_up(&mut self, begins: bool) {
        self.broken = true;
        self.hopeless = begins;
    }
}

impl Unwritten {
    pub fn begins(&self) -> bool {
        self.round == self.base
    }

    /// Returns a function that gives up the chain. It is called if encoding takes too long.
    pub fn giving_up(&self) -> impl FnOnce() + Send + 'static {
        let (length, begins) = (self.length.clone(), self.begins());
        move || length.lock().give_up(begins)
    }

    /// Returns how many rounds and bytes earlier chains may take.
    pub fn limits_of_others(&self) -> (u64, u64) {
        let InputLimits { rounds, bytes, .. } = self.limits;
        (
            rounds.saturating_sub(CHAIN),
            bytes - bytes / CHAIN_TAKES_ONE_IN,
        )
    }

    /// Encodes the round.
    ///
    /// # Errors
    ///
    /// Fails if a type of this crate cannot be written as JSON, which is a defect.
    pub fn encode(self) -> Result<Encoded, serde_json::Error> {
        let begins = self.begins();
        let body = deflate(&serde_json::to_vec(&self.words)?);
        let bytes = body.len() as u64;
        let mut length = self.length.lock();
        length.rounds += 1;
        if begins {
            length.first_bytes = bytes;
        } else {
            length.later_bytes += bytes;
        }
        let most = self.limits.bytes / CHAIN_TAKES_ONE_IN;
        if length.first_bytes + length.later_bytes > most {
            length.give_up(begins);
            tracing::warn!(
                round = self.round,
                bytes,
                most,
                "too large to keep for a replay"
            );
        }
        Ok(Encoded {
            // The chain may have been given up in the meantime.
            body: (!length.broken).then_some(body),
            bytes,
        })
    }
}

fn deflate(words: &[u8]) -> Vec<u8> {
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector cannot fail.
    let _ = deflated.write_all(words);
    deflated.finish().unwrap_or_default()
}

/// Why a recorded round cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the recorded bytes are damaged")]
    Bytes(#[from] std::io::Error),
    #[error("the recorded round is of another version")]
    Words(#[from] serde_json::Error),
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
        let mut words = Vec::new();
        DeflateDecoder::new(body.as_ref()).read_to_end(&mut words)?;
        let words: RoundDocument = serde_json::from_slice(&words)?;
        words.snapshot.apply(&mut snapshot);
        words.plan.apply(&mut plan);
    }
    Ok((snapshot, plan))
}

#[cfg(test)]
mod tests;
