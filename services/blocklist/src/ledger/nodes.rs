//! Nodes as rm-scheduler publishes them, and the counts that the brakes use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_blocklist_domain::{BrakeReason, Pool};
use hayward_publication::{Change, Followed, Update};
use hayward_rm_scheduler_api::evidence::MachineEntry;

/// Window of the storm brake, in milliseconds (B1).
const STORM_WINDOW_MS: u64 = 300_000;

#[derive(Clone, Default)]
pub struct Nodes {
    followed: Followed<MachineEntry>,
    /// Ready nodes by pool.
    ready: BTreeMap<String, u64>,
    /// Every node name ever seen; a node may return under its name.
    pub known: BTreeSet<String>,
    /// Nodes that turned bad, oldest first, each with its monotonic time.
    turned: VecDeque<(u64, String)>,
}

/// A node with a block or on trial.
#[derive(Debug, Clone, Copy)]
pub struct Blocked<'a> {
    pub node: &'a str,
    /// True for an automatic block or a trial.
    pub automatic: bool,
}

impl Nodes {
    /// Applies an update and returns the names seen for the first time.
    pub fn absorb(&mut self, update: Update<MachineEntry>, monotonic_ms: u64) -> Vec<String> {
        let mut new_names = Vec::new();
        for change in self.followed.absorb(update, monotonic_ms) {
            let Change::Set { key, before } = change else {
                continue;
            };
            let now = self.followed.get(&key).is_some_and(|machine| machine.ready);
            if before.is_some_and(|before| before.ready) && !now {
                self.turned_bad(&key, monotonic_ms);
            }
            if self.known.insert(key.clone()) {
                new_names.push(key);
            }
        }
        self.ready.clear();
        for (_, machine) in self.followed.iter().filter(|(_, machine)| machine.ready) {
            *self.ready.entry(machine.pool.clone()).or_default() += 1;
        }
        new_names
    }

    /// True after the first update of the publication.
    pub fn is_loaded(&self) -> bool {
        self.followed.heard()
    }

    pub fn get(&self, node: &str) -> Option<&MachineEntry> {
        self.followed.get(node)
    }

    /// Ready nodes by pool.
    pub fn ready(&self) -> &BTreeMap<String, u64> {
        &self.ready
    }

    pub fn cursor(&self) -> Option<hayward_publication::Cursor> {
        self.followed.cursor()
    }

    /// Counts a node that stopped being ready or was blocked automatically.
    pub fn turned_bad(&mut self, node: &str, monotonic_ms: u64) {
        self.turned.push_back((monotonic_ms, node.to_owned()));
        while self
            .turned
            .front()
            .is_some_and(|(at, _)| monotonic_ms.saturating_sub(*at) >= STORM_WINDOW_MS)
        {
            self.turned.pop_front();
        }
    }

    /// Pool of a node, and its counts for the brakes.
    ///
    /// # Errors
    /// When the node is unknown, which prevents every automatic block.
    pub fn pool_of<'a>(
        &self,
        node: &str,
        blocked: impl Iterator<Item = Blocked<'a>>,
        monotonic_ms: u64,
    ) -> Result<(String, Pool), BrakeReason> {
        let Some(machine) = self.get(node) else {
            return Err(BrakeReason::Unknown {
                node: node.to_owned(),
            });
        };
        let within = |other: &str| {
            let other = self.get(other).filter(|other| other.pool == machine.pool);
            other.map(|other| other.ready)
        };
        let mut pool = Pool {
            ready: self.ready.get(&machine.pool).copied().unwrap_or(0),
            node_ready: machine.ready,
            ..Pool::default()
        };
        for block in blocked.filter(|block| block.node != node) {
            if let Some(ready) = within(block.node) {
                pool.withheld += u64::from(block.automatic);
                pool.blocked += u64::from(ready);
            }
        }
        let recent = self
            .turned
            .iter()
            .filter(|(at, other)| {
                monotonic_ms.saturating_sub(*at) < STORM_WINDOW_MS && other != node
            })
            .filter(|(_, other)| within(other).is_some());
        let distinct: BTreeSet<&str> = recent.map(|(_, other)| other.as_str()).collect();
        pool.turned_bad = u64::try_from(distinct.len()).unwrap_or(u64::MAX);
        Ok((machine.pool.clone(), pool))
    }
}
