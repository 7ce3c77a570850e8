//! The parts of the policy that the sums of allocations depend on. When they change, the sums are
//! rebuilt.

use std::collections::BTreeMap;

use hayward_vocabulary::Quantum;

use crate::input::snapshot::{Policy, Pool, Snapshot};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyInputs {
    quantum: Quantum,
    pools: BTreeMap<String, Pool>,
    /// Policy and pool, by class.
    classes: BTreeMap<String, (Policy, String)>,
    /// Trees with queues.
    trees: Vec<String>,
}

impl PolicyInputs {
    pub fn new(snapshot: &Snapshot) -> Self {
        let classes = snapshot.classes.iter();
        Self {
            quantum: snapshot.quantum.clone(),
            pools: snapshot.pools.clone(),
            classes: classes
                .map(|(name, class)| (name.clone(), (class.policy, class.pool.clone())))
                .collect(),
            trees: snapshot.queues.keys().cloned().collect(),
        }
    }

    /// Returns whether the snapshot still has these parts of the policy.
    pub fn are_unchanged_in(&self, snapshot: &Snapshot) -> bool {
        let classes = snapshot.classes.iter();
        let classes = classes.map(|(name, class)| (name, class.policy, &class.pool));
        let own = self.classes.iter();
        let own = own.map(|(name, (policy, pool))| (name, *policy, pool));
        self.quantum == snapshot.quantum
            && self.pools == snapshot.pools
            && own.eq(classes)
            && self.trees.iter().eq(snapshot.queues.keys())
    }
}
