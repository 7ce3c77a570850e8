//! What differs between two snapshots, by name. Naming too much costs time and changes nothing.

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName, WorkId};

/// Entries that came, went or changed. A new policy, new tunables, the time, the number of the
/// round and what is carried are looked at in every round and need not be named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// Nothing is known: the whole snapshot is read.
    pub everything: bool,
    pub nodes: BTreeSet<NodeName>,
    pub work: BTreeSet<WorkId>,
    pub allocations: BTreeSet<AllocationId>,
}

impl News {
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }
}
