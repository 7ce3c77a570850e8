//! The machines as rm-scheduler names them, and what the brakes count over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hayward_blocklist_domain::{Pool, Withheld};
use hayward_publication::{Change, Followed, Update};
use hayward_rm_scheduler_api::evidence::MachineEntry;

/// B1 looks at what turned bad in this time.
const STORM_MS: u64 = 300_000;

#[derive(Clone, Default)]
pub struct Machines {
    followed: Followed<MachineEntry>,
    /// Ready nodes by pool.
    ready: BTreeMap<String, u64>,
    /// Every name that was ever seen: a machine may return under its name (section 11).
    pub known: BTreeSet<String>,
    /// Nodes that turned bad, oldest first, by the monotonic clock.
    turned: VecDeque<(u64, String)>,
}

/// A machine under a block or on trial.
#[derive(Debug, Clone, Copy)]
pub struct Blocked<'a> {
    pub node: &'a str,
    /// Blocked automatically, or on trial.
    pub automatic: bool,
}

impl Machines {
    /// Takes an update in; the names that were never seen before.
    pub fn absorb(&mut self, update: Update<MachineEntry>, monotonic_ms: u64) -> Vec<String> {
        let mut fresh = Vec::new();
        for change in self.followed.absorb(update, monotonic_ms) {
            let Change::Set { key, before } = change else {
                continue;
            };
            let now = self.followed.get(&key).is_some_and(|machine| machine.ready);
            if before.is_some_and(|before| before.ready) && !now {
                self.turned_bad(&key, monotonic_ms);
            }
            if self.known.insert(key.clone()) {
                fresh.push(key);
            }
        }
        self.ready.clear();
        for (_, machine) in self.followed.iter().filter(|(_, machine)| machine.ready) {
            *self.ready.entry(machine.pool.clone()).or_default() += 1;
        }
        fresh
    }

    pub fn heard(&self) -> bool {
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

    pub fn turned_bad(&mut self, node: &str, monotonic_ms: u64) {
        self.turned.push_back((monotonic_ms, node.to_owned()));
        while self
            .turned
            .front()
            .is_some_and(|(at, _)| monotonic_ms.saturating_sub(*at) >= STORM_MS)
        {
            self.turned.pop_front();
        }
    }

    /// The pool of a node as the brakes see it.
    ///
    /// # Errors
    /// When it is not known, which holds every automatic block.
    pub fn pool_of<'a>(
        &self,
        node: &str,
        blocked: impl Iterator<Item = Blocked<'a>>,
        monotonic_ms: u64,
    ) -> Result<(String, Pool), Withheld> {
        let Some(machine) = self.get(node) else {
            return Err(Withheld::Unknown {
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
            .filter(|(at, other)| monotonic_ms.saturating_sub(*at) < STORM_MS && other != node)
            .filter(|(_, other)| within(other).is_some());
        let distinct: BTreeSet<&str> = recent.map(|(_, other)| other.as_str()).collect();
        pool.turned = u64::try_from(distinct.len()).unwrap_or(u64::MAX);
        Ok((machine.pool.clone(), pool))
    }
}
