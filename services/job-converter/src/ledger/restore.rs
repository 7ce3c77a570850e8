//! Restores the working set from rows. It equals the state of the last commit, except for monotonic
//! clocks, which restart.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hayward_job_converter_domain::service_processors::FailureRecord;
use hayward_job_converter_domain::user_numbers::UserNumbers;
use hayward_job_converter_domain::{Backoff, OutcomeSums};
use hayward_publication::Followed;
use hayward_publication::committer::Moment;
use hayward_vocabulary::{AllocationId, BadName, NodeName, Timestamp, UserName, WorkId, WorkKind};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::Ledger;
use super::ended_work::FinalWork;
use super::idempotency_keys::IdempotencyKeys;
use super::last_hosts::LastHosts;
use super::submit_and_cancel::RunnerUse;
use super::task_leases::leased_tasks_from_text;
use crate::applications::Applications;
use crate::invariants::{IncompleteGangs, TransitionalStates};
use crate::orchestrators::Orchestrators;
use crate::shared_state::{Owners, SharedState};
use crate::store::accounts::StoredAccount;
use crate::store::applications::{ApplicationRow, ApplicationTaskRow};
use crate::store::load_open_state::{
    DoneRow, FailuresRow, FinalRow, OpenRow, Stored, StoredBackoff, StoredLease, StoredSettled,
    SumRow, UsageRow,
};
use crate::store::past_allocations::PastRow;
use crate::store::processors::{LastHostRow, StoredProcessor};
use crate::work::prepared_work::{Origin, submission_from_row};
use crate::work::service_deployment::Version;
use crate::work::service_processors::{failover_from_text, outcome_from_name};
use crate::work::{Job, Runner, Work, parse_work_id};

/// Creates the error of an unreadable row. It stops the start, because continuing would lose the
/// row's content.
fn unreadable(subject: &str, error: impl std::error::Error) -> sqlx::Error {
    sqlx::Error::Protocol(format!("a row of {subject} cannot be read: {error}"))
}

fn invalid_name(error: BadName) -> sqlx::Error {
    unreadable("names", error)
}

fn read_numbers(rows: Vec<StoredAccount>) -> Result<UserNumbers, sqlx::Error> {
    let mut numbers = UserNumbers::default();
    for row in rows {
        let user = UserName::new(row.user).map_err(invalid_name)?;
        let number = u32::try_from(row.number).map_err(|error| unreadable("account", error))?;
        numbers.restore(user, number, row.retired);
    }
    Ok(numbers)
}

fn read_applications(
    shared: &SharedState,
    heads: Vec<ApplicationRow>,
    tasks: Vec<ApplicationTaskRow>,
) -> Result<Applications, sqlx::Error> {
    Applications::from_rows(&shared.settings, heads, tasks)
        .map_err(|error| unreadable("application", error))
}

impl Ledger {
    fn empty(shared: Arc<SharedState>, applications: Applications) -> Self {
        Self {
            applications,
            shared,
            works: FxHashMap::default(),
            final_works: FxHashMap::default(),
            final_order: VecDeque::new(),
            runners: FxHashMap::default(),
            last_hosts: LastHosts::default(),
            keys: IdempotencyKeys::default(),
            allocations: Followed::default(),
            verdicts_cursor: None,
            lease_ends: FxHashMap::default(),
            lease_order: BTreeSet::new(),
            hold_ends: BTreeSet::new(),
            delay_ends: BTreeSet::new(),
            changed_leases: BTreeSet::new(),
            dirty: BTreeSet::new(),
            progressed: BTreeSet::new(),
            next_progress_ms: 0,
            orchestrators: Orchestrators::default(),
            transitional_states: TransitionalStates::default(),
            incomplete_gangs: IncompleteGangs::default(),
        }
    }

    pub(super) fn from_rows(
        stored: Stored,
        moment: &Moment,
        shared: Arc<SharedState>,
    ) -> Result<Self, sqlx::Error> {
        *shared.owners.write() = Owners::default();
        shared.verdicts.write().clear();
        shared.accounts.replace(read_numbers(stored.accounts)?);
        let mut keys = IdempotencyKeys::default();
        stored.keys.into_iter().for_each(|row| keys.restore(row));
        let mut runners = FxHashMap::default();
        for row in stored.runners {
            let id = WorkId::new(row.id).map_err(invalid_name)?;
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
        ledger.restore_last_hosts(stored.last_hosts)?;
        for row in stored.open {
            ledger.restore_open(row)?;
        }
        for row in stored.final_works {
            ledger.restore_final(row)?;
        }
        ledger.restore_unrun(&stored.unrun);
        ledger.restore_task_results(stored.done, stored.sums, &stored.failures);
        ledger.restore_usage(&stored.usage);
        for row in &stored.leases {
            ledger.restore_lease(row, moment)?;
        }
        ledger.restore_delays(&stored.failures, moment);
        ledger.restore_task_stops(&stored.task_stops, moment);
        ledger.restore_past(stored.past)?;
        ledger.restore_settled(stored.settled)?;
        for row in stored.backoffs {
            ledger.restore_backoff(&row, moment);
        }
        ledger.restore_processors(&stored.processors, moment)?;
        Ok(ledger)
    }

    /// Restores outcomes, sums and failures of tasks.
    fn restore_task_results(
        &mut self,
        done: Vec<DoneRow>,
        sums: Vec<SumRow>,
        failures: &[FailuresRow],
    ) {
        for row in done {
            if let Some(job) = self.job(row.job) {
                job.tasks.restore_done(to_u64(row.start), to_u64(row.stop));
            }
        }
        for row in sums {
            if let Some(job) = self.job(row.job) {
                job.tasks.restore_sums(OutcomeSums {
                    failed: to_u64(row.failed),
                    cancelled: to_u64(row.cancelled),
                    spent_us: to_u64(row.spent_us),
                });
            }
        }
        for row in failures {
            if let Some(job) = self.job(row.job) {
                let failures = u32::try_from(row.failures).unwrap_or(u32::MAX);
                job.tasks.restore_failures(to_u64(row.task), failures);
            }
        }
    }

    fn restore_usage(&mut self, rows: &[UsageRow]) {
        for row in rows {
            if let Some(job) = self.job(row.job) {
                let usage = &mut job.usage;
                usage.cpu_us = usage.cpu_us.saturating_add(to_u64(row.cpu_us));
                usage.wall_us = usage.wall_us.saturating_add(to_u64(row.wall_us));
                let (runs, max) = (to_u64(row.runs), to_u64(row.max_memory_bytes));
                usage.memory.restore(row.memory_bucket, runs, max);
                usage
                    .wall
                    .restore(row.wall_bucket, runs, to_u64(row.max_wall_us));
            }
        }
    }

    fn restore_past(&mut self, rows: Vec<PastRow>) -> Result<(), sqlx::Error> {
        for row in rows {
            let id = AllocationId::new(row.allocation).map_err(invalid_name)?;
            let node = NodeName::new(row.node).map_err(invalid_name)?;
            if let Some(job) = self.job(row.job) {
                job.past.restore(id, node);
            }
        }
        Ok(())
    }

    fn restore_settled(&mut self, rows: Vec<StoredSettled>) -> Result<(), sqlx::Error> {
        for row in rows {
            let id = AllocationId::new(row.allocation).map_err(invalid_name)?;
            if let Some(slot) = self.slot(row.work, &row.slot) {
                slot.settled.insert(id);
            }
        }
        Ok(())
    }

    fn restore_last_hosts(&mut self, rows: Vec<LastHostRow>) -> Result<(), sqlx::Error> {
        for row in rows {
            let user = UserName::new(row.user).map_err(invalid_name)?;
            let node = NodeName::new(row.node).map_err(invalid_name)?;
            self.last_hosts
                .restore((user, row.service), row.processor, node);
        }
        Ok(())
    }

    /// Restores stored processors. Waiting retries and running failovers follow from them.
    fn restore_processors(
        &mut self,
        rows: &[StoredProcessor],
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

    fn restore_processor(&mut self, row: &StoredProcessor) -> Result<(), sqlx::Error> {
        let failover = row.failover.as_deref().map(failover_from_text).transpose();
        let failover = failover.map_err(|error| unreadable("processor", error))?;
        let record = row
            .failures
            .zip(row.last_failure_ms)
            .map(|(count, at)| FailureRecord {
                count: u32::try_from(count).unwrap_or(0),
                last_failure_ms: at,
                last_delay_ms: to_u64(row.last_delay_ms.unwrap_or(0)),
            });
        let outcome = row.ended.as_deref().map(outcome_from_name);
        let Some(work) = self.works.get_mut(&row.work) else {
            return Ok(());
        };
        if let Some(slot) = find_slot(work, &row.slot)
            && let Some(processors) = &mut work.processors
        {
            processors.restore(slot, record, outcome, failover);
        }
        Ok(())
    }

    fn restore_open(&mut self, row: OpenRow) -> Result<(), sqlx::Error> {
        let runner = match row.runner {
            Some(id) => {
                let id = WorkId::new(id).map_err(invalid_name)?;
                self.runners.get_mut(&id).map(|runner_use| {
                    runner_use.works += 1;
                    Runner {
                        id,
                        token: runner_use.token.clone(),
                    }
                })
            }
            None => None,
        };
        let spec = submission_from_row(&row.kind, &row.submission, runner)
            .map_err(|error| unreadable("work", error))?;
        let groups = row.groups.as_deref().map(serde_json::from_str).transpose();
        let origin = Origin {
            user: UserName::new(row.user_name).map_err(invalid_name)?,
            actor: row.actor,
            groups: groups
                .map_err(|error| unreadable("groups", error))?
                .unwrap_or_default(),
            at: Timestamp::from_unix_ms(row.submitted_at_ms),
            traceparent: row.traceparent,
            stop_grace_ms: self.shared.settings.stop_grace_ms,
            account: None,
        };
        let id = WorkId::from_uuid(parse_kind(&row.kind), row.id);
        let mut work = Work::new(id, row.id, &origin, spec);
        work.cancelled = row.cancelled;
        work.events = u32::try_from(row.events).unwrap_or(0);
        work.version = Version {
            generation: u32::try_from(row.generation).unwrap_or(1),
            deployment_number: u32::try_from(row.deployed).unwrap_or(1),
        };
        self.shared.owners.write().insert(row.id, &work.user);
        if let Some(host_key) = work.host_key() {
            self.last_hosts.add_service((work.user.clone(), host_key));
        }
        self.works.insert(row.id, Box::new(work));
        Ok(())
    }

    fn restore_final(&mut self, row: FinalRow) -> Result<(), sqlx::Error> {
        let id = WorkId::from_uuid(parse_kind(&row.kind), row.id);
        let user = UserName::new(row.user_name).map_err(invalid_name)?;
        let runner = row
            .runner
            .map(WorkId::new)
            .transpose()
            .map_err(invalid_name)?;
        self.shared.owners.write().insert(row.id, &user);
        self.final_order.push_back((row.ended_at_ms, row.id));
        let host_key = row
            .host_affinity
            .then(|| row.name.unwrap_or_else(|| id.to_string()));
        if let Some(host_key) = &host_key {
            self.last_hosts
                .add_service((user.clone(), host_key.clone()));
        }
        let final_work = FinalWork {
            id,
            user,
            runner,
            host_key,
        };
        self.final_works.insert(row.id, final_work);
        Ok(())
    }

    fn restore_lease(&mut self, row: &StoredLease, moment: &Moment) -> Result<(), sqlx::Error> {
        let holder = AllocationId::new(row.allocation.clone()).map_err(invalid_name)?;
        let leased =
            leased_tasks_from_text(&row.tasks).map_err(|error| unreadable("lease", error))?;
        let lease_ms = self.shared.settings.task_lease_ms;
        let Some(job) = self.job(row.job) else {
            return Ok(());
        };
        job.tasks.restore_lease(&holder, &leased);
        let end = moment.monotonic_ms.saturating_add(lease_ms);
        self.lease_ends.insert(holder.clone(), (row.job, end));
        self.lease_order.insert((end, holder));
        Ok(())
    }

    fn restore_backoff(&mut self, row: &StoredBackoff, moment: &Moment) {
        let work = row.work;
        let Some(policy) = self.works.get(&work).map(|work| work.backoff_policy()) else {
            return;
        };
        let Some(slot) = self.slot(work, &row.slot) else {
            return;
        };
        let strikes = u32::try_from(row.strikes).unwrap_or(0);
        slot.backoff = Backoff::restored(strikes, moment.monotonic_ms, &policy);
        if let Some(until) = slot.backoff.held_until_ms() {
            self.hold_ends.insert((until, work));
        }
    }

    pub(super) fn job(&mut self, uuid: Uuid) -> Option<&mut Job> {
        self.works.get_mut(&uuid)?.job_mut()
    }

    fn slot(&mut self, uuid: Uuid, slot: &str) -> Option<&mut crate::work::Slot> {
        let work = self.works.get_mut(&uuid)?;
        let slot = find_slot(work, slot)?;
        work.slots.get_mut(slot)
    }
}

fn find_slot(work: &Work, slot: &str) -> Option<usize> {
    let (_, _, processor) = parse_work_id(&WorkId::new(slot).ok()?)?;
    work.slot_at(processor)
}

pub(super) fn to_u64(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

fn parse_kind(name: &str) -> WorkKind {
    match name {
        "service" => WorkKind::Service,
        "reservation" => WorkKind::Reservation,
        _ => WorkKind::Job,
    }
}
