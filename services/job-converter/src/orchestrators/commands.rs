//! Requests of orchestrators: create, put a map, remove.

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::orchestrators::{
    MapAnswer, ORCHESTRATED, OrchestratorOrder, OrchestratorView,
};
use hayward_job_converter_domain::Brake;
use hayward_job_converter_domain::orchestrated::{
    Known, Map, Mark, Outcome, Over, Piece as _, Step,
};
use hayward_publication::committer::{Batch, Moment, Reply};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{AllocationId, UserName, WorkKind};
use uuid::Uuid;

use super::entries::{self, Faults};
use super::map_result::{in_numbers, in_words, not_applied, sorted};
use super::parse::Read;
use super::{Entry, Kept, MOST, Orchestrators, WORK, Work, work_id};
use crate::error::Refusal;
use crate::store::Rows;
use crate::store::settled::SettledRow;

/// Refused entries and unknown shares listed in an answer or a view, at most.
const MOST_NAMED: usize = 100;

pub enum Act {
    Create(OrchestratorOrder, Reply<Result<OrchestratorView, Refusal>>),
    Put(Put, Reply<Result<MapAnswer, Refusal>>),
    Remove(UserName, Reply<Result<(), Refusal>>),
}

impl Act {
    /// Name of the orchestrator.
    pub fn of(&self) -> &UserName {
        match self {
            Self::Create(order, _) => &order.name,
            Self::Put(put, _) => &put.name,
            Self::Remove(name, _) => name,
        }
    }
}

pub struct Put {
    pub name: UserName,
    pub map: Read,
    pub limits: Limits,
}

/// Set by the ledger.
#[derive(Default)]
pub struct Limits {
    /// Open work of the whole service, at most.
    pub most_open: usize,
    /// Open work submitted by users.
    pub others_open: usize,
    /// Milliseconds between two maps, at least.
    pub least_ms: u64,
}

impl Orchestrators {
    /// Creating an orchestrator again keeps its work; the users it may charge are replaced.
    pub fn create(
        &mut self,
        order: OrchestratorOrder,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<OrchestratorView, Refusal> {
        let users = (!order.anyone).then_some(order.users);
        let all = self.by_name.len() + self.elsewhere.orchestrators;
        if all >= MOST && !self.by_name.contains_key(&order.name) {
            return Err(Refusal::TooManyOrchestrators { limit: MOST });
        }
        let fresh = || Kept::new(None, moment.now);
        let kept = self.by_name.entry(order.name.clone()).or_insert_with(fresh);
        kept.users = users;
        batch.rows.orchestrators.keep(&order.name, kept.row());
        let view = entries::view(&order.name, kept);
        self.told.insert(order.name);
        Ok(view)
    }

    /// Ends all its work; its token stops working.
    pub fn remove(&mut self, name: &UserName, batch: &mut Batch<Rows>) -> Result<(), Refusal> {
        let missing = || Refusal::NoSuchOrchestrator(name.clone());
        let kept = self.by_name.remove(name).ok_or_else(missing)?;
        for (id, uuid) in &kept.ids {
            if let Some(known) = kept.book.get(id) {
                self.part(*uuid, known.piece.clone(), known.over, batch);
            }
        }
        for id in kept.book.works().keys().chain(kept.faults.keys()) {
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
        self.told.insert(name.clone());
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
        let mut kept = self.by_name.remove(&name).ok_or_else(missing)?;
        let taken = limits.others_open.saturating_add(self.open());
        let (works, bad) = sorted(&map, &kept, limits.most_open.saturating_sub(taken));
        let mark = Mark {
            lineage: map.lineage,
            sequence: map.sequence,
        };
        let early = kept.accepted_ms.filter(|_| kept.book.mark() != Some(&mark));
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
            let bad = bad.into_iter().map(|it| (it.work.clone(), it)).collect();
            self.accept((&name, &mut kept), (mark, works, bad), moment, batch)
        };
        if let Some(seen) = seen.filter(|_| answer.applied) {
            self.take_back_unnamed(&kept, seen, batch);
        }
        answer.sequence = kept.book.mark().map(|mark| mark.sequence);
        self.by_name.insert(name, kept);
        Ok(answer)
    }

    fn accept(
        &mut self,
        (name, kept): (&UserName, &mut Kept),
        (mark, works, bad): (Mark, BTreeMap<String, Entry>, Faults),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> MapAnswer {
        let before = kept.book.clone();
        let map = Map {
            mark,
            works,
            bad: bad.keys().cloned().collect(),
            leaving: self.leaving(kept),
        };
        let (steps, counts, repeated, takeover) = match kept.book.accept(map) {
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
        let refused = bad.values().take(MOST_NAMED).cloned().collect();
        if !repeated {
            let faults = std::mem::replace(&mut kept.faults, bad);
            kept.accepted_at = Some(moment.now);
            kept.accepted_ms = Some(moment.monotonic_ms);
            for step in steps {
                self.take(step, (name, kept, &before), moment, batch);
            }
            let idle = kept.book.works().iter();
            let idle = idle.filter(|(id, _)| !kept.ids.contains_key(*id));
            let idle: Vec<_> = idle.map(|(id, it)| (id.clone(), it.piece.kind())).collect();
            for work in idle {
                self.begin((name, kept), work, moment, batch);
            }
            self.tell_idle((name, kept), &faults, batch);
            batch.rows.orchestrators.keep(name, kept.row());
            self.told.insert(name.clone());
        }
        // A repeated map counts too: a process may have ended since.
        self.let_go(kept, batch);
        MapAnswer {
            applied: true,
            takeover,
            counts: in_numbers(counts),
            refused,
            unknown_shares: self.unknown(kept),
            ..MapAnswer::default()
        }
    }

    fn take(
        &mut self,
        step: Step,
        (name, kept, before): (&UserName, &mut Kept, &super::Book<Entry>),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        match step {
            Step::Vacated { work, share } => {
                let launched = |it: &Known<Entry>| it.piece.0.launch.is_some();
                // The scheduler's state is unknown before the first update, so Hayward may still
                // run the process. Once it has ended, the next map releases the share.
                let unproven = !self.heard && before.get(&work).is_some_and(launched);
                if let Some(uuid) = kept.ids.get(&work).filter(|_| !unproven) {
                    self.settle(*uuid, &share, batch);
                }
            }
            Step::Completed { work, gone: true } => {
                let known = before.get(&work);
                if let (Some(uuid), Some(known)) = (kept.ids.remove(&work), known) {
                    self.part(uuid, known.piece.clone(), known.over, batch);
                }
                batch.withdraw(ORCHESTRATED, name.as_str(), &format!("{WORK}{work}"));
            }
            Step::Arrived { work } => {
                let Some(known) = kept.book.get(&work) else {
                    return;
                };
                // To the scheduler, a restarted entry is new work.
                let old = kept.ids.get(&work).copied().zip(before.get(&work));
                if let Some((old, known)) = old {
                    self.part(old, known.piece.clone(), known.over, batch);
                }
                let kind = known.piece.kind();
                self.begin((name, kept), (work, kind), moment, batch);
            }
            Step::Completed { work, gone: false } | Step::Refreshed { work } => {
                let Some(uuid) = kept.ids.get(&work).copied() else {
                    return;
                };
                let done =
                    |book: &super::Book<Entry>| book.get(&work).map(|it| it.piece.0.items_done);
                if done(&kept.book) > done(before)
                    && let Some(work) = self.works.get_mut(&uuid)
                {
                    work.release(uuid, batch);
                }
                self.changed(uuid, kept, batch);
            }
        }
    }

    /// Registers work, whether or not it requests processes.
    fn begin(
        &mut self,
        (name, kept): (&UserName, &mut Kept),
        (work, kind): (String, WorkKind),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let uuid = fresh_uuid();
        kept.ids.insert(work.clone(), uuid);
        let fresh = Work {
            orchestrator: name.clone(),
            name: work,
            id: work_id(kind, uuid),
            arrived_at: moment.now,
            reason: None,
            gone: None,
            shares: BTreeMap::new(),
            told: BTreeMap::new(),
            settled: BTreeSet::new(),
            brake: Brake::default(),
        };
        self.works.insert(uuid, fresh);
        self.changed(uuid, kept, batch);
    }

    /// Stores the changed entry of work.
    fn changed(&mut self, uuid: Uuid, kept: &Kept, batch: &mut Batch<Rows>) {
        self.dirty.insert(uuid);
        if let Some(work) = self.works.get(&uuid)
            && let Some(known) = kept.book.get(&work.name)
        {
            batch
                .rows
                .orchestrators
                .put(uuid, work.row(&known.piece, known.over));
        }
    }

    /// No map names this work any more. It requests nothing and is forgotten with its last share.
    fn part(&mut self, uuid: Uuid, piece: Entry, over: Option<Over>, batch: &mut Batch<Rows>) {
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
        // Before the first update the orchestrator is believed; the update is checked against it.
        let known = work.shares.contains_key(share) || !self.heard;
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
    fn let_go(&mut self, kept: &Kept, batch: &mut Batch<Rows>) {
        let mut over = Vec::new();
        for (name, uuid) in &kept.ids {
            let Some(work) = self.works.get(uuid) else {
                continue;
            };
            let piece = kept.book.get(name).map(|known| &known.piece);
            let ended = work.shares.values().filter(|share| !share.holds());
            let unnamed = ended.filter(|share| !piece.is_some_and(|it| it.names(&share.id)));
            over.extend(unnamed.map(|share| (*uuid, share.id.clone())));
        }
        for (uuid, share) in over {
            self.settle(uuid, &share, batch);
        }
    }

    /// Settles shares that the orchestrator has read as vacating and names no process for.
    fn take_back_unnamed(&mut self, kept: &Kept, seen: u64, batch: &mut Batch<Rows>) {
        let mut over = Vec::new();
        for (name, uuid) in &kept.ids {
            let (Some(work), Some(known)) = (self.works.get(uuid), kept.book.get(name)) else {
                continue;
            };
            let read = work.told.iter().filter(|(_, at)| **at <= seen);
            let absent = read.filter(|(share, _)| !known.piece.names(share));
            over.extend(absent.map(|(share, _)| (*uuid, share.clone())));
        }
        for (uuid, share) in over {
            self.settle(uuid, &share, batch);
        }
    }

    /// Shares of this orchestrator that are vacating.
    fn leaving(&self, kept: &Kept) -> BTreeSet<AllocationId> {
        let works = kept.ids.values().filter_map(|uuid| self.works.get(uuid));
        let told = works.flat_map(|work| work.shares.values());
        let told = told.filter(|share| share.vacate.is_some());
        told.map(|share| share.id.clone()).collect()
    }

    /// Shares the map calls running although its work does not hold them.
    fn unknown(&self, kept: &Kept) -> Vec<AllocationId> {
        let mut unknown = Vec::new();
        let works = kept.book.works().iter().filter(|_| self.heard);
        for (name, known) in works {
            let work = kept.ids.get(name).and_then(|uuid| self.works.get(uuid));
            let has = |share: &AllocationId| work.is_some_and(|it| it.shares.contains_key(share));
            let named = known.piece.processes().filter(|(_, over)| !over);
            let strange = named.map(|(share, _)| share).filter(|share| !has(share));
            unknown.extend(strange.take(MOST_NAMED - unknown.len()).cloned());
        }
        unknown
    }
}
