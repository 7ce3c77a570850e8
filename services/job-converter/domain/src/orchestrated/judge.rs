//! Decides whether a map is applied.

/// Identifies a map across all lineages of an orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Name that the orchestrator chooses when it starts without memory. It is never reused.
    pub lineage: String,
    /// Number that grows within a lineage.
    pub sequence: u64,
}

/// Why a map was ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ignored {
    /// The map names no work.
    Empty,
    /// A newer map of its lineage was accepted.
    Stale { accepted: u64 },
    /// The sequence number was used for another map.
    SequenceUsed,
    /// Another lineage has taken over.
    Superseded,
}

pub(super) enum Judged {
    /// No map was accepted before this one.
    First,
    Next,
    /// The map has the same mark as the last map.
    Again,
    /// The map starts a new lineage.
    Takeover,
    Ignored(Ignored),
}

/// Maximum number of superseded lineages that are remembered. A map of a lineage older than these
/// is taken for a new lineage.
const MAX_PAST_ATTEMPTS: usize = 64;

pub(super) fn judge(last: Option<&Mark>, past: &[String], new: &Mark, empty: bool) -> Judged {
    if past.contains(&new.lineage) {
        return Judged::Ignored(Ignored::Superseded);
    }
    match last {
        _ if empty => Judged::Ignored(Ignored::Empty),
        None => Judged::First,
        // A takeover does not depend on the sequence, since earlier maps may have been lost.
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
