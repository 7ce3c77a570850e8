//! Applies requests about orchestrators: create one, put its map, remove it.

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::orchestrators::{
    MapAnswer, ORCHESTRATED, OrchestratorOrder, OrchestratorView,
};
use hayward_job_converter_domain::Backoff;
use hayward_job_converter_domain::orchestrator_maps::{
    EndReason, KnownWork, Map, MapEntry as _, MapState, MapVersion, Outcome, Step,
};
use hayward_publication::committer::{Batch, Moment, Reply};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{AllocationId, UserName};
use uuid::Uuid;

use super::map_result::{describe_ignored, not_applied, split_entries, to_map_counts};
use super::parse_map::ParsedMap;
use super::published_entries::{self, Faults};
use super::{
    Entry, MAX_ORCHESTRATORS, OrchestratorRecord, Orchestrators, WORK_KEY_PREFIX, Work, work_id,
};
use crate::error::Refusal;
use crate::store::Rows;
use crate::store::settled_allocations::SettledRow;

/// Maximum number of refused entries and unknown allocations in a response or a view.
const MAX_LISTED: usize = 100;

/// A request about one orchestrator.
pub enum OrchestratorCommand {
    Create(OrchestratorOrder, Reply<Result<OrchestratorView, Refusal>>),
    PutMap(PutMap, Reply<Result<MapAnswer, Refusal>>),
    Remove(UserName, Reply<Result<(), Refusal>>),
}

impl OrchestratorCommand {
    /// Returns the name of the orchestrator.
    pub fn orchestrator(&self) -> &UserName {
        match self {
            Self::Create(request, _) => &request.name,
            Self::PutMap(put, _) => &put.name,
            Self::Remove(name, _) => name,
        }
    }
}

/// A map that an orchestrator sent.
pub struct PutMap {
    pub name: UserName,
    pub map: ParsedMap,
    pub limits: Limits,
}

/// An orchestrator whose map is being applied. Its record is taken out of `by_name` meanwhile.
struct Target<'a> {
    name: &'a UserName,
    record: &'a mut OrchestratorRecord,
    /// State before this map.
    before: MapState<Entry>,
}

/// A map, split into accepted and refused entries.
struct SplitMap {
    version: MapVersion,
    works: BTreeMap<String, Entry>,
    faults: Faults,
}

/// Limits that the ledger sets.
#[derive(Default)]
pub struct Limits {
    /// Maximum number of open pieces of work of the whole service.
    pub max_open: usize,
    /// Number of open pieces of work that users submitted.
    pub open_user_works: usize,
    /// Minimum milliseconds between two maps.
    pub min_interval_ms: u64,
}

impl Orchestrators {
    /// Creates an orchestrator. Creating it again keeps its work and replaces the users it may
    /// charge.
    pub fn create(
        &mut self,
        request: OrchestratorOrder,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<OrchestratorView, Refusal> {
        let users = (!request.anyone).then_some(request.users);
        let count = self.by_name.len() + self.uncopied.orchestrators;
        if count >= MAX_ORCHESTRATORS && !self.by_name.contains_key(&request.name) {
            return Err(Refusal::TooManyOrchestrators {
                limit: MAX_ORCHESTRATORS,
            });
        }
        let new_record = || OrchestratorRecord::new(None, moment.now);
        let record = self
            .by_name
            .entry(request.name.clone())
            .or_insert_with(new_record);
        record.users = users;
        batch
            .rows
            .orchestrators
            .set_orchestrator(&request.name, record.row());
        let view = published_entries::orchestrator_view(&request.name, record);
        self.dirty_views.insert(request.name);
        Ok(view)
    }

    /// Removes an orchestrator. All its work ends and its token stops working.
    pub fn remove(&mut self, name: &UserName, batch: &mut Batch<Rows>) -> Result<(), Refusal> {
        let missing = || Refusal::NoSuchOrchestrator(name.clone());
        let record = self.by_name.remove(name).ok_or_else(missing)?;
        for (id, uuid) in &record.uuid_by_entry {
            if let Some(known) = record.map.get(id) {
                self.retire(*uuid, known.entry.clone(), known.end_reason, batch);
            }
        }
        for id in record.map.works().keys().chain(record.faults.keys()) {
            batch.withdraw(
                ORCHESTRATED,
                name.as_str(),
                &format!("{WORK_KEY_PREFIX}{id}"),
            );
        }
        let works = self
            .works
            .values()
            .filter(|work| work.orchestrator == *name);
        for allocation in works.flat_map(|work| work.allocations.keys()) {
            batch.withdraw(ORCHESTRATED, name.as_str(), allocation.as_str());
        }
        batch.rows.orchestrators.remove_orchestrator(name);
        self.dirty_views.insert(name.clone());
        Ok(())
    }

    /// Applies the map of an orchestrator, unless it arrives too early.
    pub fn put_map(
        &mut self,
        put: PutMap,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<MapAnswer, Refusal> {
        let PutMap { name, map, limits } = put;
        let missing = || Refusal::NoSuchOrchestrator(name.clone());
        let mut record = self.by_name.remove(&name).ok_or_else(missing)?;
        let open = limits.open_user_works.saturating_add(self.work_count());
        let (works, faults) = split_entries(&map, &record, limits.max_open.saturating_sub(open));
        let version = MapVersion {
            lineage: map.lineage,
            sequence: map.sequence,
        };
        let last_accepted_ms = record
            .accepted_ms
            .filter(|_| record.map.version() != Some(&version));
        let wait_ms = last_accepted_ms.and_then(|at| {
            at.saturating_add(limits.min_interval_ms)
                .checked_sub(moment.monotonic_ms)
        });
        let seen = map.seen;
        let mut answer = if let Some(wait_ms) = wait_ms.filter(|wait_ms| *wait_ms > 0) {
            let min_interval_ms = limits.min_interval_ms;
            let detail = format!("one map in {min_interval_ms} ms; try again in {wait_ms} ms");
            not_applied("too_early", detail)
        } else {
            let mut target = Target {
                name: &name,
                before: record.map.clone(),
                record: &mut record,
            };
            let faults = faults.into_iter().map(|it| (it.work.clone(), it)).collect();
            let map = SplitMap {
                version,
                works,
                faults,
            };
            self.apply_map(&mut target, map, moment, batch)
        };
        if let Some(seen) = seen.filter(|_| answer.applied) {
            self.settle_unnamed_vacating(&record, seen, batch);
        }
        answer.sequence = record.map.version().map(|version| version.sequence);
        self.by_name.insert(name, record);
        Ok(answer)
    }

    /// Compares a map with the last one and applies the difference.
    fn apply_map(
        &mut self,
        target: &mut Target<'_>,
        map: SplitMap,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> MapAnswer {
        let faults = map.faults;
        let map = Map {
            version: map.version,
            works: map.works,
            refused_ids: faults.keys().cloned().collect(),
            leaving: self.vacating_allocations(target.record),
        };
        let (steps, counts, repeated, takeover) = match target.record.map.accept(map) {
            Outcome::Ignored(reason) => {
                let (reason, detail) = describe_ignored(&reason);
                return not_applied(reason, detail);
            }
            Outcome::Applied {
                steps,
                counts,
                repeated,
                takeover,
            } => (steps, counts, repeated, takeover),
        };
        let refused = faults.values().take(MAX_LISTED).cloned().collect();
        if !repeated {
            let faults = std::mem::replace(&mut target.record.faults, faults);
            target.record.accepted_at = Some(moment.now);
            target.record.accepted_ms = Some(moment.monotonic_ms);
            for step in steps {
                self.apply_step(step, target, moment, batch);
            }
            let unregistered = target.record.map.works().keys();
            let unregistered =
                unregistered.filter(|id| !target.record.uuid_by_entry.contains_key(*id));
            let unregistered: Vec<String> = unregistered.cloned().collect();
            for work in unregistered {
                self.register_work(target, work, moment, batch);
            }
            self.publish_refused(target.name, target.record, &faults, batch);
            batch
                .rows
                .orchestrators
                .set_orchestrator(target.name, target.record.row());
            self.dirty_views.insert(target.name.clone());
        }
        // This also happens for a repeated map, because a process may have ended in the meantime.
        self.settle_unnamed_ended(target.record, batch);
        MapAnswer {
            applied: true,
            takeover,
            counts: to_map_counts(counts),
            refused,
            unknown_shares: self.unknown_allocations(target.record),
            ..MapAnswer::default()
        }
    }

    /// Applies one step of an accepted map.
    fn apply_step(
        &mut self,
        step: Step,
        target: &mut Target<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let before = &target.before;
        match step {
            Step::Vacated { work, allocation } => {
                let launched = |it: &KnownWork<Entry>| it.entry.fields.launch.is_some();
                // The scheduler's state is unknown before the first update, so Hayward may still
                // run the process. Once it has ended, the next map releases the allocation.
                let may_run = !self.synced && before.get(&work).is_some_and(launched);
                if let Some(uuid) = target.record.uuid_by_entry.get(&work).filter(|_| !may_run) {
                    self.settle_allocation(*uuid, &allocation, batch);
                }
            }
            Step::Completed { work, gone: true } => {
                let known = before.get(&work);
                if let (Some(uuid), Some(known)) =
                    (target.record.uuid_by_entry.remove(&work), known)
                {
                    self.retire(uuid, known.entry.clone(), known.end_reason, batch);
                }
                let name = target.name.as_str();
                batch.withdraw(ORCHESTRATED, name, &format!("{WORK_KEY_PREFIX}{work}"));
            }
            Step::Arrived { work } => {
                // To the scheduler, a restarted entry is new work.
                let old_uuid = target.record.uuid_by_entry.get(&work).copied();
                if let Some((old_uuid, known)) = old_uuid.zip(before.get(&work)) {
                    self.retire(old_uuid, known.entry.clone(), known.end_reason, batch);
                }
                self.register_work(target, work, moment, batch);
            }
            Step::Completed { work, gone: false } | Step::Updated { work } => {
                let Some(uuid) = target.record.uuid_by_entry.get(&work).copied() else {
                    return;
                };
                let items_done =
                    |map: &MapState<Entry>| map.get(&work).map(|it| it.entry.fields.items_done);
                if items_done(&target.record.map) > items_done(before)
                    && let Some(work) = self.works.get_mut(&uuid)
                {
                    work.clear_backoff(uuid, batch);
                }
                self.store_entry(uuid, target.record, batch);
            }
        }
    }

    /// Registers work, whether or not it requests processes.
    fn register_work(
        &mut self,
        target: &mut Target<'_>,
        work: String,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(kind) = target.record.map.get(&work).map(|it| it.entry.kind()) else {
            return;
        };
        let uuid = fresh_uuid();
        target.record.uuid_by_entry.insert(work.clone(), uuid);
        let new_work = Work {
            orchestrator: target.name.clone(),
            name: work,
            id: work_id(kind, uuid),
            arrived_at: moment.now,
            refusal_reason: None,
            retired: None,
            allocations: BTreeMap::new(),
            vacate_read_at: BTreeMap::new(),
            settled: BTreeSet::new(),
            backoff: Backoff::default(),
        };
        self.works.insert(uuid, new_work);
        self.store_entry(uuid, target.record, batch);
    }

    /// Stores a changed entry of a piece of work.
    fn store_entry(&mut self, uuid: Uuid, record: &OrchestratorRecord, batch: &mut Batch<Rows>) {
        self.dirty.insert(uuid);
        if let Some(work) = self.works.get(&uuid)
            && let Some(known) = record.map.get(&work.name)
        {
            batch
                .rows
                .orchestrators
                .set_work(uuid, work.row(&known.entry, known.end_reason));
        }
    }

    /// Retires work that no map names any more. The work requests nothing and is forgotten with its
    /// last allocation.
    fn retire(
        &mut self,
        uuid: Uuid,
        map_entry: Entry,
        end_reason: Option<EndReason>,
        batch: &mut Batch<Rows>,
    ) {
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        work.retired = Some(map_entry);
        if let Some(map_entry) = &work.retired {
            let row = work.row(map_entry, end_reason.or(Some(EndReason::NotSchedulable)));
            batch.rows.orchestrators.set_work(uuid, row);
        }
        self.dirty.insert(uuid);
    }

    /// Marks an allocation as over, so that the scheduler may reuse its quanta.
    pub(super) fn settle_allocation(
        &mut self,
        uuid: Uuid,
        allocation: &AllocationId,
        batch: &mut Batch<Rows>,
    ) {
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        // Before the first update of `allocations`, allocations are unknown and the map is trusted.
        // The update later removes settled allocations that do not exist.
        let may_settle = work.allocations.contains_key(allocation) || !self.synced;
        // An allocation that Hayward launched is over only when its process has ended.
        let is_launched_and_live = |it: &AllocationEntry| it.holds() && it.launch.is_some();
        let may_settle = may_settle
            && !work
                .allocations
                .get(allocation)
                .is_some_and(is_launched_and_live);
        if !may_settle || !work.settled.insert(allocation.clone()) {
            return;
        }
        batch.rows.settled.push(SettledRow {
            allocation: allocation.to_string(),
            slot: work.id.to_string(),
            work: uuid,
        });
        self.dirty.insert(uuid);
    }

    /// Settles ended allocations whose process the newest map does not name.
    fn settle_unnamed_ended(&mut self, record: &OrchestratorRecord, batch: &mut Batch<Rows>) {
        let mut to_settle = Vec::new();
        for (name, uuid) in &record.uuid_by_entry {
            let Some(work) = self.works.get(uuid) else {
                continue;
            };
            let map_entry = record.map.get(name).map(|known| &known.entry);
            let ended = work
                .allocations
                .values()
                .filter(|allocation| !allocation.holds());
            let unnamed = ended.filter(|allocation| {
                !map_entry.is_some_and(|it| it.names_running_process(&allocation.id))
            });
            to_settle.extend(unnamed.map(|allocation| (*uuid, allocation.id.clone())));
        }
        for (uuid, allocation) in to_settle {
            self.settle_allocation(uuid, &allocation, batch);
        }
    }

    /// Settles allocations whose vacate the orchestrator has read, and for which its map names no
    /// process.
    fn settle_unnamed_vacating(
        &mut self,
        record: &OrchestratorRecord,
        seen: u64,
        batch: &mut Batch<Rows>,
    ) {
        let mut to_settle = Vec::new();
        for (name, uuid) in &record.uuid_by_entry {
            let (Some(work), Some(known)) = (self.works.get(uuid), record.map.get(name)) else {
                continue;
            };
            let read_vacates = work.vacate_read_at.iter().filter(|(_, at)| **at <= seen);
            let unnamed = read_vacates
                .filter(|(allocation, _)| !known.entry.names_running_process(allocation));
            to_settle.extend(unnamed.map(|(allocation, _)| (*uuid, allocation.clone())));
        }
        for (uuid, allocation) in to_settle {
            self.settle_allocation(uuid, &allocation, batch);
        }
    }

    /// Returns the allocations of this orchestrator that are vacating.
    fn vacating_allocations(&self, record: &OrchestratorRecord) -> BTreeSet<AllocationId> {
        let works = record
            .uuid_by_entry
            .values()
            .filter_map(|uuid| self.works.get(uuid));
        let vacated = works.flat_map(|work| work.allocations.values());
        let vacated = vacated.filter(|allocation| allocation.vacate.is_some());
        vacated.map(|allocation| allocation.id.clone()).collect()
    }

    /// Returns the allocations for which the map names a running process, although they are not
    /// allocations of this work.
    fn unknown_allocations(&self, record: &OrchestratorRecord) -> Vec<AllocationId> {
        let mut unknown_allocations = Vec::new();
        let works = record.map.works().iter().filter(|_| self.synced);
        for (name, known) in works {
            let work = record
                .uuid_by_entry
                .get(name)
                .and_then(|uuid| self.works.get(uuid));
            let has = |allocation: &AllocationId| {
                work.is_some_and(|it| it.allocations.contains_key(allocation))
            };
            let named = known
                .entry
                .processes()
                .filter(|(_, is_complete)| !is_complete);
            let unheld = named
                .map(|(allocation, _)| allocation)
                .filter(|allocation| !has(allocation));
            unknown_allocations
                .extend(unheld.take(MAX_LISTED - unknown_allocations.len()).cloned());
        }
        unknown_allocations
    }
}
