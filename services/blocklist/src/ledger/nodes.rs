//! The nodes that rm-scheduler publishes, and the numbers of nodes that decide whether one more
//! node may be blocked automatically.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_blocklist_domain::{BrakeReason, PoolCounts};
use hayward_publication::{Change, Followed, Update};
use hayward_rm_scheduler_api::node_publications::MachineEntry;

/// Failures of nodes within this many milliseconds may be a storm, during which no node is blocked
/// automatically (B1).
const STORM_WINDOW_MS: u64 = 300_000;

#[derive(Clone, Default)]
pub struct Nodes {
    followed: Followed<MachineEntry>,
    /// Number of ready nodes of each pool.
    ready_by_pool: BTreeMap<String, u64>,
    /// Names of all nodes that were ever published, because a node may return under its name.
    pub known_names: BTreeSet<String>,
    /// Recently failed nodes, each with the monotonic time of its failure, oldest first.
    recent_failures: VecDeque<(u64, String)>,
}

/// A node that is blocked or on trial.
#[derive(Debug, Clone, Copy)]
pub struct BlockedNode<'a> {
    pub node: &'a str,
    /// True for an automatic block or a trial.
    pub is_automatic: bool,
}

impl Nodes {
    /// Applies an update. Returns the names that were published for the first time.
    pub fn absorb(&mut self, update: Update<MachineEntry>, monotonic_ms: u64) -> Vec<String> {
        let mut new_names = Vec::new();
        for change in self.followed.absorb(update, monotonic_ms) {
            let Change::Set { key, before } = change else {
                continue;
            };
            let is_ready = self.followed.get(&key).is_some_and(|node| node.ready);
            if before.is_some_and(|before| before.ready) && !is_ready {
                self.record_failure(&key, monotonic_ms);
            }
            if self.known_names.insert(key.clone()) {
                new_names.push(key);
            }
        }
        self.ready_by_pool.clear();
        for (_, node) in self.followed.iter().filter(|(_, node)| node.ready) {
            *self.ready_by_pool.entry(node.pool.clone()).or_default() += 1;
        }
        new_names
    }

    /// Returns whether the publication was received in this term.
    pub fn is_loaded(&self) -> bool {
        self.followed.has_update()
    }

    pub fn get(&self, node: &str) -> Option<&MachineEntry> {
        self.followed.get(node)
    }

    /// Returns the number of ready nodes of each pool.
    pub fn ready_by_pool(&self) -> &BTreeMap<String, u64> {
        &self.ready_by_pool
    }

    pub fn cursor(&self) -> Option<hayward_publication::Cursor> {
        self.followed.cursor()
    }

    /// Records a node that stopped being ready or was blocked automatically.
    pub fn record_failure(&mut self, node: &str, monotonic_ms: u64) {
        self.recent_failures
            .push_back((monotonic_ms, node.to_owned()));
        while self
            .recent_failures
            .front()
            .is_some_and(|(at, _)| monotonic_ms.saturating_sub(*at) >= STORM_WINDOW_MS)
        {
            self.recent_failures.pop_front();
        }
    }

    /// Returns the pool of a node and its numbers of nodes for the brakes.
    ///
    /// # Errors
    /// Returns an error if the node is unknown, which prevents every automatic block.
    pub fn pool_counts<'a>(
        &self,
        node: &str,
        blocked: impl Iterator<Item = BlockedNode<'a>>,
        monotonic_ms: u64,
    ) -> Result<(String, PoolCounts), BrakeReason> {
        let Some(entry) = self.get(node) else {
            return Err(BrakeReason::Unknown {
                node: node.to_owned(),
            });
        };
        // `None` if the other node is in another pool.
        let readiness_in_pool = |other: &str| {
            let other = self.get(other).filter(|other| other.pool == entry.pool);
            other.map(|other| other.ready)
        };
        let mut counts = PoolCounts {
            ready: self.ready_by_pool.get(&entry.pool).copied().unwrap_or(0),
            is_candidate_ready: entry.ready,
            ..PoolCounts::default()
        };
        for block in blocked.filter(|block| block.node != node) {
            if let Some(ready) = readiness_in_pool(block.node) {
                counts.withheld += u64::from(block.is_automatic);
                counts.blocked += u64::from(ready);
            }
        }
        let recent_in_pool = self
            .recent_failures
            .iter()
            .filter(|(at, other)| {
                monotonic_ms.saturating_sub(*at) < STORM_WINDOW_MS && other != node
            })
            .filter(|(_, other)| readiness_in_pool(other).is_some());
        let distinct: BTreeSet<&str> = recent_in_pool.map(|(_, other)| other.as_str()).collect();
        counts.recently_failed = u64::try_from(distinct.len()).unwrap_or(u64::MAX);
        Ok((entry.pool.clone(), counts))
    }
}
