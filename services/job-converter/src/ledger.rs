//! The working set: all open work, and the state needed to answer requests at once.
//!
//! State changes for three reasons:
//!
//! - Requests: [`submit_and_cancel`], [`service_change`], [`task_leases`], `task_cancellation`, and
//!   the modules `applications` and `orchestrators`.
//! - Updates of the publications of rm-scheduler: [`scheduler_updates`].
//! - Time: [`round`] ends leases and holds, and publishes what changed.
//!
//! Each step handles one piece of work. Only the first full update of a term reads all of it.

mod accounts;
mod dry_run;
mod ended_work;
pub mod idempotency_keys;
mod invariant_report;
pub mod last_hosts;
mod orchestrators;
mod restore;
mod retry_delays;
mod round;
mod running_tasks;
pub mod scheduler_updates;
pub mod service_change;
mod service_processors;
pub mod submit_and_cancel;
mod task_cancellation;
pub mod task_leases;
mod task_reports;
mod task_signals;
mod timeline;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hayward_publication::Followed;
use hayward_publication::committer::{Batch, DryRunSupport, Moment, Wake};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_service::metrics::Reading;
use hayward_service::runtime::block_in_place::block_in_place;
use hayward_vocabulary::{AllocationId, WorkId};
use rustc_hash::FxHashMap;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::applications::{ApplicationCommand, Applications, CommandContext};
use crate::command::Command;
use crate::invariants::TransitionalStates;
use crate::metrics::{self, Counts};
use crate::orchestrators::Orchestrators;
use crate::shared_state::SharedState;
use crate::store::{self, Rows};
use crate::work::Work;

use self::ended_work::FinalWork;
use self::idempotency_keys::IdempotencyKeys;
use self::last_hosts::LastHosts;
use self::submit_and_cancel::RunnerUse;

pub struct Ledger {
    shared: Arc<SharedState>,
    works: FxHashMap<Uuid, Box<Work>>,
    final_works: FxHashMap<Uuid, FinalWork>,
    /// Ended work by the time of its end, oldest first.
    final_order: VecDeque<(i64, Uuid)>,
    runners: FxHashMap<WorkId, RunnerUse>,
    last_hosts: LastHosts,
    keys: IdempotencyKeys,
    allocations: Followed<AllocationEntry>,
    verdicts_cursor: Option<hayward_publication::Cursor>,
    /// Job of each lease and the end of the lease, in ms of the monotonic clock.
    lease_ends: FxHashMap<AllocationId, (Uuid, u64)>,
    /// Leases by the time of their end. An entry may be earlier than the end in `lease_ends`, never
    /// later.
    lease_order: BTreeSet<(u64, AllocationId)>,
    /// Work that is held back after ends without progress, by the end of its hold in monotonic ms.
    hold_ends: BTreeSet<(u64, Uuid)>,
    /// Jobs with delayed tasks, by the times in monotonic ms at which their demand changes.
    delay_ends: BTreeSet<(u64, Uuid)>,
    /// Leases whose rows are written with this batch.
    changed_leases: BTreeSet<(Uuid, AllocationId)>,
    /// Work whose entries may have changed.
    dirty: BTreeSet<Uuid>,
    /// Work that only made progress. Its progress is published at `next_progress_ms`.
    progressed: BTreeSet<Uuid>,
    next_progress_ms: u64,
    /// Work from the maps of orchestrators. It is not part of `works`.
    orchestrators: Orchestrators,
    pub applications: Applications,
    /// Age of each transitional state, stored between two checks of the invariants.
    transitional_states: TransitionalStates,
    incomplete_gangs: crate::invariants::IncompleteGangs,
}

impl Ledger {
    fn counts(&self) -> Counts {
        let open = |kind| {
            self.works
                .values()
                .filter(|work| work.kind() == kind)
                .count()
        };
        Counts {
            open: metrics::KINDS.map(|kind| (kind, open(kind))),
            gangs: self.applications.gang_counts(),
        }
    }

    /// Answers a command that changes nothing.
    fn answer_query(&mut self, query: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match query {
            Command::RunningTasks(query, reply) => {
                let running = self.running_tasks(query, moment);
                batch.answer(reply, running);
            }
            Command::DelayedTasks(query, reply) => {
                let delayed = self.delayed_tasks(query, moment);
                batch.answer(reply, delayed);
            }
            Command::RunnerCommands(query, reply) => {
                let commands = self.runner_commands(&query);
                batch.answer(reply, commands);
            }
            Command::CheckInvariants(reply) => {
                let findings = block_in_place(|| self.check_invariants(moment));
                batch.answer(reply, findings);
            }
            _ => {}
        }
    }

    fn run_application_command(
        &mut self,
        command: ApplicationCommand,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        command(CommandContext {
            applications: &mut self.applications,
            verdicts: &self.shared.verdicts.read(),
            moment,
            batch,
        });
    }
}

impl hayward_publication::Ledger for Ledger {
    type Command = Command;
    type Rows = Rows;
    type Context = SharedState;

    async fn load(
        tx: &mut PgConnection,
        moment: &Moment,
        context: &Arc<SharedState>,
    ) -> Result<Self, sqlx::Error> {
        let stored = store::load_open_state::load(tx).await?;
        let stored_orchestrators = store::orchestrators::load(tx).await?;
        let strikes = stored.backoffs.iter();
        let strikes = strikes.map(|row| (row.work, row.strikes)).collect();
        let mut ledger = Self::from_rows(stored, moment, context.clone())?;
        ledger.orchestrators = Orchestrators::from_rows(stored_orchestrators)?;
        let hold_ends = ledger
            .orchestrators
            .restore_backoffs(strikes, moment.monotonic_ms);
        ledger.hold_ends.extend(hold_ends);
        Ok(ledger)
    }

    fn apply(&mut self, command: Command, moment: &Moment, batch: &mut Batch<Rows>) {
        match command {
            Command::Submit(submit, reply) => {
                let result = self.submit(*submit, moment, batch);
                batch.answer(reply, result);
            }
            Command::ChangeService(change, reply) => {
                let result = self.change_service(*change, moment, batch);
                batch.answer(reply, result);
            }
            Command::Cancel(cancel, reply) => {
                let result = self.cancel(&cancel, moment, batch);
                batch.answer(reply, result);
            }
            Command::CancelTasks(cancel, reply) => {
                let result = self.cancel_tasks(&cancel, moment, batch);
                batch.answer(reply, result);
            }
            Command::SignalTasks(signal, reply) => {
                let result = self.signal_tasks(&signal, moment, batch);
                batch.answer(reply, result);
            }
            Command::Lease(lease, reply) => {
                let result = self.lease(*lease, moment, batch);
                batch.answer(reply, result);
            }
            query @ (Command::RunningTasks(..)
            | Command::DelayedTasks(..)
            | Command::RunnerCommands(..)
            | Command::CheckInvariants(..)) => self.answer_query(query, moment, batch),
            Command::AllocationUpdate(update, reply) => {
                self.apply_allocation_update(update, moment, batch);
                batch.answer(reply, ());
            }
            Command::VerdictUpdate(update, reply) => {
                self.apply_verdict_update(update, batch);
                batch.answer(reply, ());
            }
            Command::ForgetAccount(user, reply) => {
                let result = self.forget_account(&user, moment, batch);
                batch.answer(reply, result);
            }
            Command::Orchestrator(command) if batch.is_dry_run() => {
                self.dry_run_orchestrators(*command, moment, batch);
            }
            Command::Orchestrator(command) => {
                self.run_orchestrator_command(*command, moment, batch);
            }
            Command::ChangeApplication(application, command) if batch.is_dry_run() => {
                self.dry_run_applications(&application, command, moment, batch);
            }
            Command::ChangeApplication(_, command) | Command::ReadApplications(command) => {
                self.run_application_command(command, moment, batch);
            }
        }
    }

    fn is_repeat(&self, command: &Command) -> bool {
        match command {
            Command::Submit(submit, _) => {
                matches!(
                    self.keys.lookup(submit.request_key),
                    idempotency_keys::KeyState::SameRequest(_)
                )
            }
            _ => false,
        }
    }

    /// Selects how a command is evaluated as a dry run. The working set is too large to copy. A dry
    /// run therefore changes nothing, or runs on a copy of one application or orchestrator.
    fn dry_run(&self, command: &Command) -> DryRunSupport<Self> {
        match command {
            Command::Submit(..)
            | Command::ChangeService(..)
            | Command::Cancel(..)
            | Command::ForgetAccount(..)
            | Command::CancelTasks(..)
            | Command::SignalTasks(..)
            | Command::Orchestrator(..)
            | Command::ChangeApplication(..)
            | Command::ReadApplications(..) => DryRunSupport::InPlace,
            _ => DryRunSupport::Unsupported,
        }
    }

    fn round(&mut self, moment: &Moment, batch: &mut Batch<Rows>) -> Wake {
        self.run_round(moment, batch)
    }

    fn readings(&self, _moment: &Moment) -> Vec<Reading> {
        metrics::readings(&self.counts())
    }

    fn count_changes(rows: &Rows) -> usize {
        rows.row_count()
    }

    async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        store::write(rows, tx).await
    }
}
