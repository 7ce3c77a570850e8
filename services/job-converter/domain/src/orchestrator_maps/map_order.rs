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

/// Order of a map relative to the last accepted map.
pub(super) enum MapOrder {
    /// No map was accepted before this one.
    First,
    Next,
    /// The map has the same mark as the last map.
    Repeated,
    /// The map starts a new lineage.
    Takeover,
    Ignored(Ignored),
}

/// Maximum number of superseded lineages that are remembered. A map of a lineage older than these
/// is taken for a new lineage.
const MAX_PAST_LINEAGES: usize = 64;

pub(super) fn classify(
    last: Option<&Mark>,
    past: &[String],
    new: &Mark,
    is_empty: bool,
) -> MapOrder {
    if past.contains(&new.lineage) {
        return MapOrder::Ignored(Ignored::Superseded);
    }
    match last {
        _ if is_empty => MapOrder::Ignored(Ignored::Empty),
        None => MapOrder::First,
        // A takeover does not depend on the sequence, since earlier maps may have been lost.
        Some(last) if last.lineage != new.lineage => MapOrder::Takeover,
        Some(last) if new.sequence < last.sequence => MapOrder::Ignored(Ignored::Stale {
            accepted: last.sequence,
        }),
        Some(last) if new.sequence == last.sequence => MapOrder::Repeated,
        Some(_) => MapOrder::Next,
    }
}

pub(super) fn remember_lineage(past: &mut Vec<String>, lineage: String) {
    past.push(lineage);
    let excess = past.len().saturating_sub(MAX_PAST_LINEAGES);
    past.drain(..excess);
}
