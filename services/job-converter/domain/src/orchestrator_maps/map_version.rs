//! The version of a map. It decides whether the map is applied.

/// Version of a map. It identifies the map among all maps of an orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapVersion {
    /// Name that the orchestrator chooses when it starts without memory of earlier maps. It is
    /// never reused.
    pub lineage: String,
    /// Number that grows within a lineage.
    pub sequence: u64,
}

/// Why a map was ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IgnoredReason {
    /// The map names no work.
    Empty,
    /// A newer map of its lineage was accepted.
    Stale { accepted: u64 },
    /// The sequence number was used for another map.
    SequenceUsed,
    /// Another lineage has taken over.
    Superseded,
}

/// Result of comparing the version of a map with the last accepted version.
pub(super) enum VersionCheck {
    /// No map was accepted before this one.
    First,
    /// The map is newer than the last map of the same lineage.
    Next,
    /// The map has the version of the last map.
    Repeated,
    /// The map starts a new lineage.
    Takeover,
    Ignored(IgnoredReason),
}

/// Maximum number of superseded lineages that are remembered. A map of an older lineage would be
/// applied as a new lineage.
const MAX_PAST_LINEAGES: usize = 64;

pub(super) fn check_version(
    last: Option<&MapVersion>,
    past: &[String],
    new: &MapVersion,
    is_empty: bool,
) -> VersionCheck {
    if past.contains(&new.lineage) {
        return VersionCheck::Ignored(IgnoredReason::Superseded);
    }
    match last {
        _ if is_empty => VersionCheck::Ignored(IgnoredReason::Empty),
        None => VersionCheck::First,
        // A takeover does not depend on the sequence, since earlier maps may have been lost.
        Some(last) if last.lineage != new.lineage => VersionCheck::Takeover,
        Some(last) if new.sequence < last.sequence => VersionCheck::Ignored(IgnoredReason::Stale {
            accepted: last.sequence,
        }),
        Some(last) if new.sequence == last.sequence => VersionCheck::Repeated,
        Some(_) => VersionCheck::Next,
    }
}

pub(super) fn remember_lineage(past: &mut Vec<String>, lineage: String) {
    past.push(lineage);
    let excess = past.len().saturating_sub(MAX_PAST_LINEAGES);
    past.drain(..excess);
}
