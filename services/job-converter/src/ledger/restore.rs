//! Restores the working set from rows. It equals the state of the last commit, except for monotonic
//! clocks, which restart.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hayward_job_converter_domain::Brake;
use hayward_job_converter_domain::processors::Record;
use hayward_publication::Followed;
use hayward_publication::committer::Moment;
use hayward_vocabulary::{AllocationId, BadName, NodeName, Timestamp, UserName, WorkId, WorkKind};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::Ledger;
use super::keys::Keys;
use super::last_hosts::LastHosts;
use super::tasks::held_from_text;
use crate::applications::Applications;
use crate::invariants::{IncompleteGangs, TransitionalStates};
use crate::model::{FinalWork, RunnerUse};
use crate::orchestrators::Orchestrators;
use crate::shared_view::{Owners, SharedView};
use crate::store::applications::{HeadText, TaskText};
use crate::store::load::{
    DoneRow, FailuresRow, FinalRow, HeldRow, OpenRow, SlotRow, Stored, StrikesRow, SumRow,
};
use crate::store::past::PastRow;
use crate::store::processors::{KnownRow, LocalityRow};
use crate::work::intake::{Origin, submission_from_row};
use crate::work::processors::{failover_of, over_of};
use crate::work::version::Version;
use crate::work::{Job, Runner, Work, read_id};

/// Creates the error of an unreadable row. It stops the start, because continuing would lose the
/// row's content.
fn unreadable(what: &str, error: impl std::error::Error) -> sqlx::Error {
    sqlx::Error::Protocol(format!("a row of {what} cannot be read: {error}"))
}

fn named(error: BadName) -> sqlx::Error {
    unreadable("names", error)
}

fn read_applications(
    shared: &SharedView,
    heads: Vec<HeadText>,
    tasks: Vec<TaskText>,
) -> Result<Applications, sqlx::Error> {
    Applications::restored(&shared.settings, heads, tasks)
        .map_err(|error| unreadable("application", error))
}

impl Ledger {
    fn empty(shared: Arc<SharedView>, applications: Applications) -> Self {
        Self {
            applications,
            shared,
            works: FxHashMap::default(),
            finals: FxHashMap::default(),
            final_order: VecDeque::new(),
            runners: FxHashMap::default(),
            last_hosts: LastHosts::default(),
            keys: Keys::default(),
            allocations: Followed::default(),
            verdicts_cursor: None,
            lease_ends: FxHashMap::default(),
            lease_order: BTreeSet::new(),
            holds: BTreeSet::new(),
            changed_leases: BTreeSet::new(),
            dirty: BTreeSet::new(),
            moving: BTreeSet::new(),
            next_progress_ms: 0,
            orchestrators: Orchestrators::default(),
            transitional_states: TransitionalStates::default(),
            incomplete_gangs: IncompleteGangs::default(),
        }
    }

    pub(super) fn restored(
        stored: Stored,
        moment: &Moment,
        shared: Arc<SharedView>,
    ) -> Result<Self, sqlx::Error> {
        *shared.owners.write() = Owners::default();
        shared.verdicts.write().clear();
        let mut keys = Keys::default();
        stored.keys.into_iter().for_each(|row| keys.restore(row));
        let mut runners = FxHashMap::default();
        for row in stored.runners {
            let id = WorkId::new(row.id).map_err(named)?;
            runners.insert(
                id,
                RunnerUse {
                    token: row.token.into(),
                    works: 0,
                },
            );
        }
        let (heads, tasks) = (stored.applications, stored.application_tasks);
        let applications = read_applications(&shared, heads, tasks)?;
        let mut ledger = Self {
            runners,
            keys,
            ..Self::empty(shared, applications)
        };
        ledger.restore_last_hosts(stored.localities)?;
        for row in stored.open {
            ledger.restore_open(row)?;
        }
        for row in stored.finals {
            ledger.restore_final(row)?;
        }
        ledger.restore_books(stored.done, stored.sums, stored.failures);
        for row in &stored.leases {
            ledger.restore_lease(row, moment)?;
        }
        ledger.restore_past(stored.past)?;
        ledger.restore_settled(stored.settled)?;
        for row in stored.strikes {
            ledger.restore_brake(&row, moment);
        }
        ledger.restore_processors(&stored.processors, moment)?;
        Ok(ledger)
    }

    /// Restores outcomes, sums and failures of tasks.
    fn restore_books(&mut self, done: Vec<DoneRow>, sums: Vec<SumRow>, failures: Vec<FailuresRow>) {
        for row in done {
            if let Some(job) = self.job(row.job) {
                job.tasks.restore_done(number(row.start), number(row.stop));
            }
        }
        for row in sums {
            if let Some(job) = self.job(row.job) {
                job.tasks
                    .restore_sums(number(row.failed), number(row.spent_us));
            }
        }
        for row in failures {
            if let Some(job) = self.job(row.job) {
                let failures = u32::try_from(row.failures).unwrap_or(u32::MAX);
                job.tasks.restore_failures(number(row.task), failures);
            }
        }
    }

    fn restore_past(&mut self, rows: Vec<PastRow>) -> Result<(), sqlx::Error> {
        for row in rows {
            let id = AllocationId::new(row.allocation).map_err(named)?;
            let node = NodeName::new(row.node).map_err(named)?;
            if let Some(job) = self.job(row.job) {
                job.past.restore(id, node);
            }
        }
        Ok(())
    }

    fn restore_settled(&mut self, rows: Vec<SlotRow>) -> Result<(), sqlx::Error> {
        for row in rows {
            let id = AllocationId::new(row.allocation).map_err(named)?;
            if let Some(slot) = self.slot(row.work, &row.slot) {
                slot.settled.insert(id);
            }
        }
        Ok(())
    }

    fn restore_last_hosts(&mut self, rows: Vec<LocalityRow>) -> Result<(), sqlx::Error> {
        for row in rows {
            let user = UserName::new(row.user).map_err(named)?;
            let node = NodeName::new(row.node).map_err(named)?;
            self.last_hosts
                .restore((user, row.service), row.processor, node);
        }
        Ok(())
    }

    /// Restores stored processors. Waiting retries and running failovers follow from them.
    fn restore_processors(
        &mut self,
        rows: &[KnownRow],
        moment: &Moment,
    ) -> Result<(), sqlx::Error> {
        for row in rows {
            self.restore_processor(row)?;
        }
        let Self {
            works, last_hosts, ..
        } = self;
        for work in works.values_mut() {
            work.begin_processors(last_hosts, moment);
        }
        Ok(())
    }

    fn restore_processor(&mut self, row: &KnownRow) -> Result<(), sqlx::Error> {
        let failover = row.failover.as_deref().map(failover_of).transpose();
        let failover = failover.map_err(|error| unreadable("processor", error))?;
        let record = row
            .failures
            .zip(row.last_failure_ms)
            .map(|(count, at)| Record {
                count: u32::try_from(count).unwrap_or(0),
                last_failure_ms: at,
                last_delay_ms: number(row.last_delay_ms.unwrap_or(0)),
            });
        let over = row.ended.as_deref().map(over_of);
        let Some(work) = self.works.get_mut(&row.work) else {
            return Ok(());
        };
        if let Some(slot) = slot_of(work, &row.slot)
            && let Some(processors) = &mut work.processors
        {
            processors.restore(slot, record, over, failover);
        }
        Ok(())
    }

    fn restore_open(&mut self, row: OpenRow) -> Result<(), sqlx::Error> {
        let runner = match row.runner {
            Some(id) => {
                let id = WorkId::new(id).map_err(named)?;
                self.runners.get_mut(&id).map(|shared| {
                    shared.works += 1;
                    Runner {
                        id,
                        token: shared.token.clone(),
                    }
                })
            }
            None => None,
        };
        let what = submission_from_row(&row.kind, &row.submission, runner)
            .map_err(|error| unreadable("work", error))?;
        let groups = row.groups.as_deref().map(serde_json::from_str).transpose();
        let origin = Origin {
            user: UserName::new(row.user_name).map_err(named)?,
            actor: row.actor,
            groups: groups
                .map_err(|error| unreadable("groups", error))?
                .unwrap_or_default(),
            at: Timestamp::from_unix_ms(row.submitted_at_ms),
            traceparent: row.traceparent,
            stop_grace_ms: self.shared.settings.stop_grace_ms,
        };
        let id = WorkId::fresh(kind_of(&row.kind), row.id);
        let mut work = Work::new(id, row.id, &origin, what);
        work.cancelled = row.cancelled;
        work.events = u32::try_from(row.events).unwrap_or(0);
        work.version = Version {
            generation: u32::try_from(row.generation).unwrap_or(1),
            deployed: u32::try_from(row.deployed).unwrap_or(1),
        };
        self.shared.owners.write().insert(row.id, &work.user);
        if let Some(host_key) = work.host_key() {
            self.last_hosts.enter((work.user.clone(), host_key));
        }
        self.works.insert(row.id, Box::new(work));
        Ok(())
    }

    fn restore_final(&mut self, row: FinalRow) -> Result<(), sqlx::Error> {
        let id = WorkId::fresh(kind_of(&row.kind), row.id);
        let user = UserName::new(row.user_name).map_err(named)?;
        let runner = row.runner.map(WorkId::new).transpose().map_err(named)?;
        self.shared.owners.write().insert(row.id, &user);
        self.final_order.push_back((row.ended_at_ms, row.id));
        let host_key = row
            .host_affinity
            .then(|| row.name.unwrap_or_else(|| id.to_string()));
        if let Some(host_key) = &host_key {
            self.last_hosts.enter((user.clone(), host_key.clone()));
        }
        let over = FinalWork {
            id,
            user,
            runner,
            host_key,
        };
        self.finals.insert(row.id, over);
        Ok(())
    }

    fn restore_lease(&mut self, row: &HeldRow, moment: &Moment) -> Result<(), sqlx::Error> {
        let holder = AllocationId::new(row.allocation.clone()).map_err(named)?;
        let leased = held_from_text(&row.tasks).map_err(|error| unreadable("lease", error))?;
        let grace_ms = self.shared.settings.task_lease_ms;
        let Some(job) = self.job(row.job) else {
            return Ok(());
        };
        job.tasks.restore_lease(&holder, &leased);
        let end = moment.monotonic_ms.saturating_add(grace_ms);
        self.lease_ends.insert(holder.clone(), (row.job, end));
        self.lease_order.insert((end, holder));
        Ok(())
    }

    fn restore_brake(&mut self, row: &StrikesRow, moment: &Moment) {
        let work = row.work;
        let Some(pace) = self.works.get(&work).map(|work| work.pace()) else {
            return;
        };
        let Some(slot) = self.slot(work, &row.slot) else {
            return;
        };
        let strikes = u32::try_from(row.strikes).unwrap_or(0);
        slot.brake = Brake::restored(strikes, moment.monotonic_ms, &pace);
        if let Some(until) = slot.brake.held_until_ms() {
            self.holds.insert((until, work));
        }
    }

    fn job(&mut self, uuid: Uuid) -> Option<&mut Job> {
        self.works.get_mut(&uuid)?.job_mut()
    }

    fn slot(&mut self, uuid: Uuid, slot: &str) -> Option<&mut crate::work::Slot> {
        let work = self.works.get_mut(&uuid)?;
        let slot = slot_of(work, slot)?;
        work.slots.get_mut(slot)
    }
}

fn slot_of(work: &Work, slot: &str) -> Option<usize> {
    let (_, _, place) = read_id(&WorkId::new(slot).ok()?)?;
    work.slot_at(place)
}

fn number(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

fn kind_of(name: &str) -> WorkKind {
    match name {
        "service" => WorkKind::Service,
        "reservation" => WorkKind::Reservation,
        _ => WorkKind::Job,
    }
}
