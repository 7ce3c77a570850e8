//! Decides whether a map is applied at all.

/// Identifies a map within the lives of an orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Chosen by the orchestrator when it starts without memory; never reused.
    pub lineage: String,
    /// Grows within a lineage.
    pub sequence: u64,
}

/// Why a map changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ignored {
    /// It names no work.
    Empty,
    /// A newer map of its lineage was accepted.
    Stale { accepted: u64 },
    /// Its sequence number was used for another map.
    SequenceUsed,
    /// Another lineage has taken over.
    Superseded,
}

pub(super) enum Judged {
    /// No map was accepted before.
    First,
    Next,
    /// Same mark as the last map.
    Again,
    /// A new lineage.
    Takeover,
    Ignored(Ignored),
}

/// Superseded lineages remembered. A map would have to be delayed by this many lineages to be taken
/// for a new one.
const MAX_PAST_ATTEMPTS: usize = 64;

pub(super) fn judge(last: Option<&Mark>, past: &[String], new: &Mark, empty: bool) -> Judged {
    if past.contains(&new.lineage) {
        return Judged::Ignored(Ignored::Superseded);
    }
    match last {
        _ if empty => Judged::Ignored(Ignored::Empty),
        None => Judged::First,
        // Independent of the sequence, since earlier maps may have been lost.
        Some(last) if last.lineage != new.lineage => Judged::Takeover,
        Some(last) if new.sequence < last.sequence => Judged::Ignored(Ignored::Stale {
            accepted: last.sequence,
        }),
        Some(last) if new.sequence == last.sequence => Judged::Again,
        Some(_) => Judged::Next,
    }
}

pub(super) fn remember(past: &mut Vec<String>, lineage: String) {
    past.push(lineage);
    let over = past.len().saturating_sub(MAX_PAST_ATTEMPTS);
    past.drain(..over);
}
