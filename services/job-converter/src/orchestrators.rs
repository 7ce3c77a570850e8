//! Work of orchestrators: it begins, changes and ends with the maps they put (fair-share
//! scheduling, section 7), and what they were given is a publication each of them follows.
//!
//! What a map means is decided in `domain/src/orchestrated.rs`; here its steps are taken: rows,
//! demand, and the set of shares. Each orchestrator has a book of its own, and nothing that one of
//! them says is looked up in another's.

mod absorb;
pub mod commands;
mod entries;
mod entry;
mod map_result;
pub mod parse;
pub mod refresh;
mod restore;

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::orchestrators::RefusedEntry;
use hayward_job_converter_domain::Brake;
use hayward_job_converter_domain::orchestrated::Book;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::{AllocationId, Timestamp, UserName, WorkId, WorkKind};
use rustc_hash::FxHashMap;
use uuid::Uuid;

pub use entry::Entry;

/// Orchestrators at most.
pub const MOST: usize = 64;
/// Key of the entry of a piece of work in the allocation set; shares have their own ids.
const WORK: &str = "work/";

#[derive(Default)]
pub struct Orchestrators {
    by_name: BTreeMap<UserName, Kept>,
    works: FxHashMap<Uuid, Work>,
    /// Work whose entries may read differently.
    dirty: BTreeSet<Uuid>,
    /// Orchestrators whose view may.
    told: BTreeSet<UserName>,
    /// Shares that were listed when the last term ended, until the scheduler has been heard.
    unproven: Vec<(UserName, String)>,
    /// The scheduler has been heard in this term: shares that are not here are nowhere.
    heard: bool,
    /// What is counted and not here, of one that was taken apart.
    elsewhere: Elsewhere,
}

#[derive(Default)]
struct Elsewhere {
    orchestrators: usize,
    works: usize,
}

/// One orchestrator.
#[derive(Clone)]
struct Kept {
    users: Option<Vec<UserName>>,
    created_at: Timestamp,
    accepted_at: Option<Timestamp>,
    /// The same by the monotonic clock, in this term.
    accepted_ms: Option<u64>,
    book: Book<Entry>,
    /// The work of each entry.
    ids: BTreeMap<String, Uuid>,
    /// Entries of the last map that were refused.
    faults: BTreeMap<String, RefusedEntry>,
}

/// A piece of work that a map named.
#[derive(Clone)]
struct Work {
    orchestrator: UserName,
    /// The orchestrator's own id.
    name: String,
    id: WorkId,
    arrived_at: Timestamp,
    /// Why it was refused.
    reason: Option<String>,
    /// No map names it any more; the last entry it had, until its last share is gone.
    gone: Option<Entry>,
    shares: BTreeMap<AllocationId, AllocationEntry>,
    /// Since which revision its orchestrator could read that a share is to be given back.
    told: BTreeMap<AllocationId, u64>,
    /// Shares that are over: given back, or ended and no longer named.
    settled: BTreeSet<AllocationId>,
    /// Of a job that Hayward starts, whose processes end and end.
    brake: Brake,
}

impl Orchestrators {
    /// Work that is known, for the limit on all of it: what is over has rows and an entry too.
    pub fn open(&self) -> usize {
        self.works.len() + self.elsewhere.works
    }

    /// One orchestrator alone with what it has, to try something on (A10). All are counted as if
    /// the others were there.
    pub fn apart(&self, name: &UserName) -> Self {
        let one = self.by_name.get(name).cloned();
        let its = self.works.iter();
        let its = its.filter(|(_, work)| work.orchestrator == *name);
        let works: FxHashMap<_, _> = its.map(|(uuid, it)| (*uuid, it.clone())).collect();
        Self {
            elsewhere: Elsewhere {
                orchestrators: self.by_name.len() - usize::from(one.is_some()),
                works: self.works.len() - works.len(),
            },
            by_name: one.into_iter().map(|it| (name.clone(), it)).collect(),
            works,
            heard: self.heard,
            ..Self::default()
        }
    }

    pub fn touch(&mut self, uuid: Uuid) {
        if self.works.contains_key(&uuid) {
            self.dirty.insert(uuid);
        }
    }

    pub fn touch_work(&mut self, work: &WorkId) {
        if let Some(uuid) = number(work) {
            self.touch(uuid);
        }
    }
}

impl Kept {
    fn new(users: Option<Vec<UserName>>, created_at: Timestamp) -> Self {
        Self {
            users,
            created_at,
            accepted_at: None,
            accepted_ms: None,
            book: Book::default(),
            ids: BTreeMap::new(),
            faults: BTreeMap::new(),
        }
    }

    fn may_charge(&self, user: &UserName) -> bool {
        let listed = self.users.as_ref();
        listed.is_none_or(|users| users.contains(user))
    }
}

impl Work {
    /// Shares that are not over, and not to be given back.
    fn held(&self) -> u64 {
        self.standing()
            .filter(|share| share.vacate.is_none())
            .count() as u64
    }

    fn alive(&self) -> u64 {
        self.standing().count() as u64
    }

    fn standing(&self) -> impl Iterator<Item = &AllocationEntry> {
        let over = |share: &&AllocationEntry| self.settled.contains(&share.id);
        let shares = self.shares.values().filter(|share| share.holds());
        shares.filter(move |share| !over(share))
    }
}

fn number(work: &WorkId) -> Option<Uuid> {
    let (_, rest) = work.as_str().split_once('_')?;
    Uuid::try_parse(rest).ok()
}

fn work_id(kind: WorkKind, uuid: Uuid) -> WorkId {
    WorkId::fresh(kind, uuid)
}
