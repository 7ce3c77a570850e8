//! Work of orchestrators. The work begins, changes and ends with the maps that an orchestrator
//! sends. One publication per orchestrator lists its work and the allocations of this work.
//!
//! `domain/src/orchestrator_maps.rs` decides what a map means. This module applies the decision to
//! rows, demand and published allocations. Each orchestrator has its own map state.

mod allocation_updates;
pub mod commands;
mod map_entry;
mod map_result;
pub mod parse_map;
pub mod publish_changes;
mod published_entries;
mod row_conversion;

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::orchestrators::RefusedEntry;
use hayward_job_converter_domain::Backoff;
use hayward_job_converter_domain::orchestrator_maps::MapState;
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::{AllocationId, Timestamp, UserName, WorkId, WorkKind};
use rustc_hash::FxHashMap;
use uuid::Uuid;

pub use map_entry::Entry;

/// Maximum number of orchestrators.
pub const MAX_ORCHESTRATORS: usize = 64;
/// Key prefix of work entries in `orchestrated`. Allocations use their own ids.
const WORK_KEY_PREFIX: &str = "work/";

#[derive(Default)]
pub struct Orchestrators {
    by_name: BTreeMap<UserName, OrchestratorRecord>,
    works: FxHashMap<Uuid, Work>,
    /// Work whose entries may have changed.
    dirty: BTreeSet<Uuid>,
    /// Orchestrators whose view may have changed.
    dirty_views: BTreeSet<UserName>,
    /// Allocations that were published in the last term. Empty after the first update of
    /// `allocations`.
    unconfirmed_allocations: Vec<(UserName, String)>,
    /// Whether the first update of `allocations` in this term has arrived. From then on,
    /// allocations that are not here do not exist.
    synced: bool,
    /// Number of orchestrators and pieces of work that a copy for a dry run does not contain. 0 in
    /// the original.
    uncopied: UncopiedCounts,
}

#[derive(Default)]
struct UncopiedCounts {
    orchestrators: usize,
    works: usize,
}

/// One orchestrator and its last accepted map.
#[derive(Clone)]
struct OrchestratorRecord {
    users: Option<Vec<UserName>>,
    created_at: Timestamp,
    accepted_at: Option<Timestamp>,
    /// `accepted_at` by the monotonic clock, in ms. `None` before the first map of this term.
    accepted_ms: Option<u64>,
    map: MapState<Entry>,
    /// Uuid of the work of each entry.
    uuid_by_entry: BTreeMap<String, Uuid>,
    /// Refused entries of the last map.
    faults: BTreeMap<String, RefusedEntry>,
}

/// Work from an entry of a map.
#[derive(Clone)]
struct Work {
    orchestrator: UserName,
    /// Id that the orchestrator chose.
    name: String,
    id: WorkId,
    arrived_at: Timestamp,
    /// Reason of the refusal: the code, then a sentence. `None` if the work is not refused.
    refusal_reason: Option<String>,
    /// Last entry of retired work, which no map names any more. The work is forgotten with its last
    /// allocation. `None` while a map names the work.
    retired: Option<Entry>,
    allocations: BTreeMap<AllocationId, AllocationEntry>,
    /// Revision from which the orchestrator can read that an allocation must be returned.
    vacate_read_at: BTreeMap<AllocationId, u64>,
    /// Allocations that were returned, or that ended and are no longer named. The demand names
    /// them, so that the scheduler may grant others.
    settled: BTreeSet<AllocationId>,
    /// Crash-loop backoff of a launched job whose processes end without progress.
    backoff: Backoff,
}

impl Orchestrators {
    /// Returns the number of all known pieces of work, for the limit on open work. Ended work
    /// counts too, because it still has rows and an entry.
    pub fn work_count(&self) -> usize {
        self.works.len() + self.uncopied.works
    }

    /// Returns work that is charged to the user and is open or holds allocations.
    pub fn live_work_of(&self, user: &UserName) -> Option<String> {
        let is_live = |work: &&Work| {
            let record = self.by_name.get(&work.orchestrator);
            let known = record.and_then(|record| record.map.get(&work.name));
            let is_open = known.is_some_and(|known| known.end_reason.is_none());
            let entry = known.map(|known| &known.entry).or(work.retired.as_ref());
            let is_own = entry.is_some_and(|entry| entry.fields.owner == *user);
            is_own && (is_open || !work.allocations.is_empty())
        };
        let work = self.works.values().find(is_live);
        work.map(|work| work.id.to_string())
    }

    /// Copies one orchestrator for a dry run. Limits still count all orchestrators (A10).
    pub fn copy_of_one(&self, name: &UserName) -> Self {
        let record = self.by_name.get(name).cloned();
        let works_of_name = self.works.iter();
        let works_of_name = works_of_name.filter(|(_, work)| work.orchestrator == *name);
        let works: FxHashMap<_, _> = works_of_name
            .map(|(uuid, it)| (*uuid, it.clone()))
            .collect();
        Self {
            uncopied: UncopiedCounts {
                orchestrators: self.by_name.len() - usize::from(record.is_some()),
                works: self.works.len() - works.len(),
            },
            by_name: record.into_iter().map(|it| (name.clone(), it)).collect(),
            works,
            synced: self.synced,
            ..Self::default()
        }
    }

    pub fn mark_dirty(&mut self, uuid: Uuid) {
        if self.works.contains_key(&uuid) {
            self.dirty.insert(uuid);
        }
    }

    pub fn mark_work_dirty(&mut self, work: &WorkId) {
        if let Some(uuid) = work_uuid(work) {
            self.mark_dirty(uuid);
        }
    }
}

impl OrchestratorRecord {
    fn new(users: Option<Vec<UserName>>, created_at: Timestamp) -> Self {
        Self {
            users,
            created_at,
            accepted_at: None,
            accepted_ms: None,
            map: MapState::default(),
            uuid_by_entry: BTreeMap::new(),
            faults: BTreeMap::new(),
        }
    }

    fn may_charge(&self, user: &UserName) -> bool {
        let listed = self.users.as_ref();
        listed.is_none_or(|users| users.contains(user))
    }
}

impl Work {
    /// Returns the number of allocations that hold a process and are not vacating.
    fn held_count(&self) -> u64 {
        self.live_allocations()
            .filter(|allocation| allocation.vacate.is_none())
            .count() as u64
    }

    fn live_count(&self) -> u64 {
        self.live_allocations().count() as u64
    }

    fn live_allocations(&self) -> impl Iterator<Item = &AllocationEntry> {
        let is_settled = |allocation: &&AllocationEntry| self.settled.contains(&allocation.id);
        let allocations = self
            .allocations
            .values()
            .filter(|allocation| allocation.holds());
        allocations.filter(move |allocation| !is_settled(allocation))
    }
}

fn work_uuid(work: &WorkId) -> Option<Uuid> {
    let (_, suffix) = work.as_str().split_once('_')?;
    Uuid::try_parse(suffix).ok()
}

fn work_id(kind: WorkKind, uuid: Uuid) -> WorkId {
    WorkId::from_uuid(kind, uuid)
}
