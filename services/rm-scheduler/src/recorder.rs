//! What rounds were planned from and what was planned, kept so that any of them can be replayed.
//!
//! A round that changed something keeps its exact [`Snapshot`] and its [`Plan`] as the planner
//! made it, before anything was dropped from it. They are kept as *chains*: the first round of a
//! chain is written as a whole, each later one as what differs from the one before, so a round
//! costs what is new. A new chain begins with a term, with a policy, and when the differences of
//! a chain have become as large as its beginning; that bounds both what a round costs over time
//! and what one reading costs. Whole chains are dropped when the limits are reached.
//!
//! What a plan says of work otherwise than the one kept before is what the rounds since then said,
//! so no plans are compared.
//!
//! Words are JSON of ordered maps, so that equal rounds are equal bytes, deflated. Encoding happens
//! on a thread of its own, while the other rows of the round's transaction are written.

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
use crate::working_set::snapshot::{Delta, TrackedSnapshot};
pub use plan_diff::{PlanDiff, WorkChanges};

/// Rounds of one chain at most: reading the last of them reads them all.
const CHAIN: u64 = 64;
/// A chain is at most this part of the bytes that may be kept, so that dropping whole chains
/// always leaves some.
const CHAIN_TAKES_ONE_IN: u64 = 4;

/// Whether a round keeps its inputs.
pub struct Recorder {
    limits: InputLimits,
    /// First round of the chain.
    chain: Option<u64>,
    /// What was said since its newest round.
    said: WorkChanges,
    /// Known only when a round has been encoded.
    length: Arc<Mutex<Length>>,
    /// Rounds to wait before another chain is tried.
    rest: u64,
}

#[derive(Debug, Default)]
struct Length {
    rounds: u64,
    first_bytes: u64,
    later_bytes: u64,
    /// A round of it could not be kept, so no later one can.
    broken: bool,
    /// Not even its first one could: the next chain would fare no better.
    hopeless: bool,
}

/// One round, to be encoded and written.
#[derive(Debug)]
pub struct Unwritten {
    pub round: u64,
    /// First round of its chain.
    pub base: u64,
    pub limits: InputLimits,
    words: RoundDocument,
    length: Arc<Mutex<Length>>,
}

/// One round, encoded.
#[derive(Default)]
pub struct Encoded {
    /// Absent when the limits do not allow it.
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
            said: WorkChanges::default(),
            length: Arc::default(),
            rest: 0,
        }
    }

    /// Takes note of what a round says otherwise, whether it will be kept or not.
    pub fn observe(&mut self, decided: &Decided) {
        match &decided.shares {
            Some(shares) if self.chain_continues() => self.said.add(decided, shares),
            // The next that is kept is written as a whole.
            _ => self.end_chain(),
        }
    }

    /// A chain that is not over, and of which no more was said than a snapshot may hold: also where
    /// nothing is kept for long.
    fn chain_continues(&self) -> bool {
        let said = self.said.pieces_of_work() as u64;
        self.chain.is_some() && said <= self.limits.entries && !self.length.lock().ended()
    }

    fn end_chain(&mut self) {
        self.chain = None;
        self.said = WorkChanges::default();
    }

    /// Takes note of the snapshot as it is now, before the plan is carried out.
    ///
    /// # Errors
    /// Why it cannot be kept, for people.
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
            let told = format!("the snapshot has {entries} entries; inputs_entries allows {most}");
            return Some(told);
        }
        if std::mem::take(&mut self.length.lock().hopeless) {
            self.rest = CHAIN;
        }
        self.rest = self.rest.checked_sub(1)?;
        Some("an earlier round was too large to keep; it is tried again later".to_owned())
    }

    /// The round changed something: its inputs are to be kept, with what [`PlanDiff::rest_of`] made
    /// of its plan. Where a chain begins, `all` says everything of work.
    pub fn record(
        &mut self,
        round: u64,
        snapshot: Delta,
        rest: Plan,
        all: impl FnOnce() -> WorkChanges,
    ) -> Unwritten {
        let known = self.chain.filter(|_| !snapshot.is_whole());
        let said = std::mem::take(&mut self.said);
        let (base, said) = match known {
            Some(base) => (base, said),
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
                plan: PlanDiff::new(rest, said),
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

    /// What to call when nobody can wait for it to be encoded any longer.
    pub fn giving_up(&self) -> impl FnOnce() + Send + 'static {
        let (length, begins) = (self.length.clone(), self.begins());
        move || length.lock().give_up(begins)
    }

    /// Rounds and bytes that earlier chains may take beside this one.
    pub fn room_for_others(&self) -> (u64, u64) {
        let InputLimits { rounds, bytes, .. } = self.limits;
        (
            rounds.saturating_sub(CHAIN),
            bytes - bytes / CHAIN_TAKES_ONE_IN,
        )
    }

    /// # Errors
    /// When our own types cannot be written as JSON, which is a defect.
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
            // It may also have been given up meanwhile.
            body: (!length.broken).then_some(body),
            bytes,
        })
    }
}

fn deflate(words: &[u8]) -> Vec<u8> {
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::fast());
    // A vector takes whatever is written to it.
    let _ = deflated.write_all(words);
    deflated.finish().unwrap_or_default()
}

/// A kept round cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the bytes kept are damaged")]
    Bytes(#[from] std::io::Error),
    #[error("the words kept are not those of this version")]
    Words(#[from] serde_json::Error),
}

/// The inputs and the plan of the last of these bodies, which are a chain from its first round.
///
/// # Errors
/// When one of them was not written by this version, or is damaged.
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
