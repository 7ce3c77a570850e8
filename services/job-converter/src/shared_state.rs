//! State that the ledger shares with the HTTP handlers: settings, owners, numbers of
//! users, verdicts and notifications.
//!
//! The handlers use it only to find work and to wait. Their responses come from committed state.
//! The ledger may therefore write the shared state before the commit.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use hayward_publication::KeyedNotify;
use hayward_rm_scheduler_api::VerdictEntry;
use hayward_vocabulary::{AllocationId, Timestamp, UserName};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use uuid::Uuid;

use crate::accounts::Accounts;
use crate::config::Settings;

pub struct SharedState {
    pub settings: Settings,
    pub owners: RwLock<Owners>,
    pub accounts: Accounts,
    /// Latest verdict by work id. It is not stored, because it is followed again after a start.
    pub verdicts: RwLock<BTreeMap<String, VerdictEntry>>,
    /// Wakes requests that wait for a piece of work, when its view may have changed.
    pub views: Arc<KeyedNotify<Uuid>>,
    /// Time of the last map of each orchestrator in this process, even if the map changed nothing.
    pub last_maps: RwLock<BTreeMap<UserName, Timestamp>>,
    /// Wakes runners that wait for tasks of a job, when they may get a different response.
    pub tasks: Arc<KeyedNotify<Uuid>>,
    /// Wakes the runner of an allocation, when a command waits for it.
    pub commands: Arc<KeyedNotify<AllocationId>>,
}

impl SharedState {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            owners: RwLock::default(),
            accounts: Accounts::default(),
            verdicts: RwLock::default(),
            views: Arc::default(),
            last_maps: RwLock::default(),
            tasks: Arc::default(),
            commands: Arc::default(),
        }
    }
}

/// Owner of each piece of work. The owner is the scope in which its view is published.
#[derive(Default)]
pub struct Owners {
    by_work: FxHashMap<Uuid, UserName>,
    /// Number of pieces of work of each user.
    users: BTreeMap<UserName, usize>,
}

impl Owners {
    pub fn insert(&mut self, work: Uuid, user: &UserName) {
        if self.by_work.insert(work, user.clone()).is_none() {
            *self.users.entry(user.clone()).or_default() += 1;
        }
    }

    pub fn remove(&mut self, work: Uuid) {
        let Some(user) = self.by_work.remove(&work) else {
            return;
        };
        if let Some(count) = self.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&user);
            }
        }
    }

    pub fn owner(&self, work: Uuid) -> Option<&UserName> {
        self.by_work.get(&work)
    }

    /// Returns the users with work, by name, starting at `from`.
    pub fn users_from(&self, from: &str) -> Vec<UserName> {
        let range = (Bound::Included(from), Bound::Unbounded);
        self.users
            .range::<str, _>(range)
            .map(|(user, _)| user.clone())
            .collect()
    }
}
