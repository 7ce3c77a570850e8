//! What the ledger shares with the handlers: settings, who owns what, why work waits, and bells.
//!
//! Everything here is a hint for finding or waking; what a reader is told comes from what was
//! committed. So it does no harm that the ledger writes here before its commit.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use hayward_publication::KeyedNotify;
use hayward_rm_scheduler_api::VerdictEntry;
use hayward_vocabulary::{Timestamp, UserName};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use uuid::Uuid;

use crate::config::Settings;

pub struct Room {
    pub settings: Settings,
    pub owners: RwLock<Owners>,
    /// By work id, as last told by the scheduler; news, not state: it is asked for anew at start.
    pub verdicts: RwLock<BTreeMap<String, VerdictEntry>>,
    /// Rung when a view may read differently.
    pub views: Arc<KeyedNotify<Uuid>>,
    /// When each orchestrator was last heard by this process, also where nothing was new.
    pub heard: RwLock<BTreeMap<UserName, Timestamp>>,
    /// Rung when a waiting runner may get another answer.
    pub tasks: Arc<KeyedNotify<Uuid>>,
}

impl Room {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            owners: RwLock::default(),
            verdicts: RwLock::default(),
            views: Arc::default(),
            heard: RwLock::default(),
            tasks: Arc::default(),
        }
    }
}

/// Whose work is whose: the scope its view is published in.
#[derive(Default)]
pub struct Owners {
    by_work: FxHashMap<Uuid, UserName>,
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

    pub fn of(&self, work: Uuid) -> Option<&UserName> {
        self.by_work.get(&work)
    }

    /// Users with work, in order of name, from `from` on.
    pub fn users_from(&self, from: &str) -> Vec<UserName> {
        let range = (Bound::Included(from), Bound::Unbounded);
        self.users
            .range::<str, _>(range)
            .map(|(user, _)| user.clone())
            .collect()
    }
}
