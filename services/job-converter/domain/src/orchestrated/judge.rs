//! Whether a map is looked at at all.

/// Which map of which life of an orchestrator this is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Chosen by the orchestrator when it begins without memory, and never again.
    pub lineage: String,
    /// Of this map; only grows within a lineage.
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
    /// Another lineage has taken over from this one.
    Superseded,
}

pub(super) enum Judged {
    /// Nothing was accepted before.
    First,
    Next,
    /// Has the mark of the last one.
    Again,
    /// A life without memory of the one before.
    Takeover,
    Ignored(Ignored),
}

/// Lineages remembered as superseded: a map would have to be delayed for as many lives of its
/// orchestrator to be taken for a new one.
const MOST_PAST: usize = 64;

pub(super) fn judge(last: Option<&Mark>, past: &[String], new: &Mark, empty: bool) -> Judged {
    if past.contains(&new.lineage) {
        return Judged::Ignored(Ignored::Superseded);
    }
    match last {
        _ if empty => Judged::Ignored(Ignored::Empty),
        None => Judged::First,
        // Whatever its sequence: the maps before it may have been lost.
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
    let over = past.len().saturating_sub(MOST_PAST);
    past.drain(..over);
}
