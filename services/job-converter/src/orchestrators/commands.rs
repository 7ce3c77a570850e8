//! Requests of orchestrators: create, put a map, remove.

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::orchestrators::{
    MapAnswer, ORCHESTRATED, OrchestratorOrder, OrchestratorView,
};
use hayward_job_converter_domain::Brake;
use hayward_job_converter_domain::orchestrated::{
    Known, Map, MapState, Mark, Outcome, Over, Piece as _, Step,
};
use hayward_publication::committer::{Batch, Moment, Reply};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{AllocationId, UserName};
use uuid::Uuid;

use super::entries::{self, Faults};
use super::map_result::{in_numbers, in_words, not_applied, sorted};
use super::parse::ParsedMap;
use super::{Entry, MAX_ORCHESTRATORS, OrchestratorRecord, Orchestrators, WORK, Work, work_id};
use crate::error::Refusal;
use crate::store::Rows;
use crate::store::settled::SettledRow;

/// Maximum number of refused entries and unknown shares in a response or a view.
const MAX_LISTED: usize = 100;

pub enum OrchestratorCommand {
    Create(OrchestratorOrder, Reply<Result<OrchestratorView, Refusal>>),
    Put(Put, Reply<Result<MapAnswer, Refusal>>),
    Remove(UserName, Reply<Result<(), Refusal>>),
}

impl OrchestratorCommand {
    /// Returns the name of the orchestrator.
    pub fn orchestrator(&self) -> &UserName {
        match self {
            Self::Create(order, _) => &order.name,
            Self::Put(put, _) => &put.name,
            Self::Remove(name, _) => name,
        }
    }
}

pub struct Put {
    pub name: UserName,
    pub map: ParsedMap,
    pub limits: Limits,
}

/// An orchestrator whose map is being applied. Meanwhile it is not in `by_name`.
struct Target<'a> {
    name: &'a UserName,
    record: &'a mut OrchestratorRecord,
    /// State before this map.
    before: MapState<Entry>,
}

/// A map, split into accepted and refused entries.
struct SortedMap {
    mark: Mark,
    works: BTreeMap<String, Entry>,
    bad: Faults,
}

/// Limits that the ledger sets.
#[derive(Default)]
pub struct Limits {
    /// Maximum number of open pieces of work of the whole service.
    pub most_open: usize,
    /// Number of open pieces of work that users submitted.
    pub others_open: usize,
    /// Minimum milliseconds between two maps.
    pub least_ms: u64,
}

impl Orchestrators {
    /// Creates an orchestrator. Creating it again keeps its work and replaces the users it may
    /// charge.
    pub fn create(
        &mut self,
        order: OrchestratorOrder,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<OrchestratorView, Refusal> {
        let users = (!order.anyone).then_some(order.users);
        let all = self.by_name.len() + self.elsewhere.orchestrators;
        if all >= MAX_ORCHESTRATORS && !self.by_name.contains_key(&order.name) {
            return Err(Refusal::TooManyOrchestrators {
                limit: MAX_ORCHESTRATORS,
            });
        }
        let fresh = || OrchestratorRecord::new(None, moment.now);
        let record = self.by_name.entry(order.name.clone()).or_insert_with(fresh);
        record.users = users;
        batch
            .rows
            .orchestrators
            .put_orchestrator(&order.name, record.row());
        let view = entries::view(&order.name, record);
        self.dirty_views.insert(order.name);
        Ok(view)
    }

    /// Removes an orchestrator. All its work ends and its token stops working.
    pub fn remove(&mut self, name: &UserName, batch: &mut Batch<Rows>) -> Result<(), Refusal> {
        let missing = || Refusal::NoSuchOrchestrator(name.clone());
        let record = self.by_name.remove(name).ok_or_else(missing)?;
        for (id, uuid) in &record.ids {
            if let Some(known) = record.map.get(id) {
                self.retire(*uuid, known.piece.clone(), known.over, batch);
            }
        }
        for id in record.map.works().keys().chain(record.faults.keys()) {
            batch.withdraw(ORCHESTRATED, name.as_str(), &format!("{WORK}{id}"));
        }
        let its = self
            .works
            .values()
            .filter(|work| work.orchestrator == *name);
        for share in its.flat_map(|work| work.shares.keys()) {
            batch.withdraw(ORCHESTRATED, name.as_str(), share.as_str());
        }
        batch.rows.orchestrators.remove(name);
        self.dirty_views.insert(name.clone());
        Ok(())
    }

    pub fn put(
        &mut self,
        put: Put,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<MapAnswer, Refusal> {
        let Put { name, map, limits } = put;
        let missing = || Refusal::NoSuchOrchestrator(name.clone());
        let mut record = self.by_name.remove(&name).ok_or_else(missing)?;
        let taken = limits.others_open.saturating_add(self.open());
        let (works, bad) = sorted(&map, &record, limits.most_open.saturating_sub(taken));
        let mark = Mark {
            lineage: map.lineage,
            sequence: map.sequence,
        };
        let early = record
            .accepted_ms
            .filter(|_| record.map.mark() != Some(&mark));
        let early = early.and_then(|at| {
            at.saturating_add(limits.least_ms)
                .checked_sub(moment.monotonic_ms)
        });
        let seen = map.seen;
        let mut answer = if let Some(wait_ms) = early.filter(|wait_ms| *wait_ms > 0) {
            let least_ms = limits.least_ms;
            let detail = format!("one map in {least_ms} ms; try again in {wait_ms} ms");
            not_applied("too_early", detail)
        } else {
            let mut target = Target {
                name: &name,
                before: record.map.clone(),
                record: &mut record,
            };
            let bad = bad.into_iter().map(|it| (it.work.clone(), it)).collect();
            let map = SortedMap { mark, works, bad };
            self.accept(&mut target, map, moment, batch)
        };
        if let Some(seen) = seen.filter(|_| answer.applied) {
            self.settle_unnamed_vacating(&record, seen, batch);
        }
        answer.sequence = record.map.mark().map(|mark| mark.sequence);
        self.by_name.insert(name, record);
        Ok(answer)
    }

    fn accept(
        &mut self,
        target: &mut Target<'_>,
        map: SortedMap,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> MapAnswer {
        let bad = map.bad;
        let map = Map {
            mark: map.mark,
            works: map.works,
            bad: bad.keys().cloned().collect(),
            leaving: self.leaving(target.record),
        };
        let (steps, counts, repeated, takeover) = match target.record.map.accept(map) {
            Outcome::Ignored(why) => {
                let (reason, detail) = in_words(&why);
                return not_applied(reason, detail);
            }
            Outcome::Applied {
                steps,
                counts,
                repeated,
                takeover,
            } => (steps, counts, repeated, takeover),
        };
        let refused = bad.values().take(MAX_LISTED).cloned().collect();
        if !repeated {
            let faults = std::mem::replace(&mut target.record.faults, bad);
            target.record.accepted_at = Some(moment.now);
            target.record.accepted_ms = Some(moment.monotonic_ms);
            for step in steps {
                self.take(step, target, moment, batch);
            }
            let idle = target.record.map.works().keys();
            let idle = idle.filter(|id| !target.record.ids.contains_key(*id));
            let idle: Vec<String> = idle.cloned().collect();
            for work in idle {
                self.begin(target, work, moment, batch);
            }
            self.publish_refused(target.name, target.record, &faults, batch);
            batch
                .rows
                .orchestrators
                .put_orchestrator(target.name, target.record.row());
            self.dirty_views.insert(target.name.clone());
        }
        // A repeated map counts too: a process may have ended since.
        self.settle_unnamed_ended(target.record, batch);
        MapAnswer {
            applied: true,
            takeover,
            counts: in_numbers(counts),
            refused,
            unknown_shares: self.unknown(target.record),
            ..MapAnswer::default()
        }
    }

    fn take(
        &mut self,
        step: Step,
        target: &mut Target<'_>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let before = &target.before;
        match step {
            Step::Vacated { work, share } => {
                let launched = |it: &Known<Entry>| it.piece.0.launch.is_some();
                // The scheduler's state is unknown before the first update, so Hayward may still
                // run the process. Once it has ended, the next map releases the share.
                let unproven = !self.synced && before.get(&work).is_some_and(launched);
                if let Some(uuid) = target.record.ids.get(&work).filter(|_| !unproven) {
                    self.settle(*uuid, &share, batch);
                }
            }
            Step::Completed { work, gone: true } => {
                let known = before.get(&work);
                if let (Some(uuid), Some(known)) = (target.record.ids.remove(&work), known) {
                    self.retire(uuid, known.piece.clone(), known.over, batch);
                }
                let name = target.name.as_str();
                batch.withdraw(ORCHESTRATED, name, &format!("{WORK}{work}"));
            }
            Step::Arrived { work } => {
                // To the scheduler, a restarted entry is new work.
                let old = target.record.ids.get(&work).copied();
                if let Some((old, known)) = old.zip(before.get(&work)) {
                    self.retire(old, known.piece.clone(), known.over, batch);
                }
                self.begin(target, work, moment, batch);
            }
            Step::Completed { work, gone: false } | Step::Refreshed { work } => {
                let Some(uuid) = target.record.ids.get(&work).copied() else {
                    return;
                };
                let done = |map: &MapState<Entry>| map.get(&work).map(|it| it.piece.0.items_done);
                if done(&target.record.map) > done(before)
                    && let Some(work) = self.works.get_mut(&uuid)
                {
                    work.release(uuid, batch);
                }
                self.changed(uuid, target.record, batch);
            }
        }
    }

    /// Registers work, whether or not it requests processes.
    fn begin(
        &mut self,
        target: &mut Target<'_>,
        work: String,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(kind) = target.record.map.get(&work).map(|it| it.piece.kind()) else {
            return;
        };
        let uuid = fresh_uuid();
        target.record.ids.insert(work.clone(), uuid);
        let fresh = Work {
            orchestrator: target.name.clone(),
            name: work,
            id: work_id(kind, uuid),
            arrived_at: moment.now,
            reason: None,
            gone: None,
            shares: BTreeMap::new(),
            vacate_read_at: BTreeMap::new(),
            settled: BTreeSet::new(),
            brake: Brake::default(),
        };
        self.works.insert(uuid, fresh);
        self.changed(uuid, target.record, batch);
    }

    /// Stores a changed entry of a piece of work.
    fn changed(&mut self, uuid: Uuid, record: &OrchestratorRecord, batch: &mut Batch<Rows>) {
        self.dirty.insert(uuid);
        if let Some(work) = self.works.get(&uuid)
            && let Some(known) = record.map.get(&work.name)
        {
            batch
                .rows
                .orchestrators
                .put(uuid, work.row(&known.piece, known.over));
        }
    }

    /// Retires work that no map names any more. It requests nothing and is forgotten with its last
    /// share.
    fn retire(&mut self, uuid: Uuid, piece: Entry, over: Option<Over>, batch: &mut Batch<Rows>) {
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        work.gone = Some(piece);
        if let Some(piece) = &work.gone {
            let row = work.row(piece, over.or(Some(Over::NotSchedulable)));
            batch.rows.orchestrators.put(uuid, row);
        }
        self.dirty.insert(uuid);
    }

    /// Marks a share as over, so that the scheduler may reuse its quanta.
    pub(super) fn settle(&mut self, uuid: Uuid, share: &AllocationId, batch: &mut Batch<Rows>) {
        let Some(work) = self.works.get_mut(&uuid) else {
            return;
        };
        // Before the first update, the map is trusted. The update is checked against it.
        let known = work.shares.contains_key(share) || !self.synced;
        // A share that Hayward launched is over only when its process has ended.
        let runs = |it: &AllocationEntry| it.holds() && it.launch.is_some();
        let known = known && !work.shares.get(share).is_some_and(runs);
        if !known || !work.settled.insert(share.clone()) {
            return;
        }
        batch.rows.settled.push(SettledRow {
            allocation: share.to_string(),
            slot: work.id.to_string(),
            work: uuid,
        });
        self.dirty.insert(uuid);
    }

    /// Settles ended shares whose process the newest map does not name.
    fn settle_unnamed_ended(&mut self, record: &OrchestratorRecord, batch: &mut Batch<Rows>) {
        let mut over = Vec::new();
        for (name, uuid) in &record.ids {
            let Some(work) = self.works.get(uuid) else {
                continue;
            };
            let piece = record.map.get(name).map(|known| &known.piece);
            let ended = work.shares.values().filter(|share| !share.holds());
            let unnamed = ended.filter(|share| !piece.is_some_and(|it| it.names(&share.id)));
            over.extend(unnamed.map(|share| (*uuid, share.id.clone())));
        }
        for (uuid, share) in over {
            self.settle(uuid, &share, batch);
        }
    }

    /// Settles shares that the orchestrator has read as vacating and names no process for.
    fn settle_unnamed_vacating(
        &mut self,
        record: &OrchestratorRecord,
        seen: u64,
        batch: &mut Batch<Rows>,
    ) {
        let mut over = Vec::new();
        for (name, uuid) in &record.ids {
            let (Some(work), Some(known)) = (self.works.get(uuid), record.map.get(name)) else {
                continue;
            };
            let read = work.vacate_read_at.iter().filter(|(_, at)| **at <= seen);
            let absent = read.filter(|(share, _)| !known.piece.names(share));
            over.extend(absent.map(|(share, _)| (*uuid, share.clone())));
        }
        for (uuid, share) in over {
            self.settle(uuid, &share, batch);
        }
    }

    /// Returns the shares of this orchestrator that are vacating.
    fn leaving(&self, record: &OrchestratorRecord) -> BTreeSet<AllocationId> {
        let works = record.ids.values().filter_map(|uuid| self.works.get(uuid));
        let vacated = works.flat_map(|work| work.shares.values());
        let vacated = vacated.filter(|share| share.vacate.is_some());
        vacated.map(|share| share.id.clone()).collect()
    }

    /// Returns the shares that the map calls running although its work does not hold them.
    fn unknown(&self, record: &OrchestratorRecord) -> Vec<AllocationId> {
        let mut unknown = Vec::new();
        let works = record.map.works().iter().filter(|_| self.synced);
        for (name, known) in works {
            let work = record.ids.get(name).and_then(|uuid| self.works.get(uuid));
            let has = |share: &AllocationId| work.is_some_and(|it| it.shares.contains_key(share));
            let named = known.piece.processes().filter(|(_, over)| !over);
            let strange = named.map(|(share, _)| share).filter(|share| !has(share));
            unknown.extend(strange.take(MAX_LISTED - unknown.len()).cloned());
        }
        unknown
    }
}
