//! Passes commands, allocation changes and rounds to the work of orchestrators.

use hayward_publication::committer::{Batch, Moment};
use hayward_rm_scheduler_api::AllocationEntry;

use super::Ledger;
use crate::orchestrators::commands::{Limits, OrchestratorCommand};
use crate::orchestrators::publish_changes::RefreshContext;
use crate::store::Rows;

impl Ledger {
    pub(super) fn run_orchestrator_command(
        &mut self,
        command: OrchestratorCommand,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        match command {
            OrchestratorCommand::Create(request, reply) => {
                let answer = self.orchestrators.create(request, moment, batch);
                batch.answer(reply, answer);
            }
            OrchestratorCommand::PutMap(mut put, reply) => {
                let settings = &self.shared.settings;
                put.limits = Limits {
                    max_open: settings.max_open_work,
                    open_user_works: self.works.len(),
                    min_interval_ms: settings.orchestrator_least_ms,
                };
                let answer = self.orchestrators.put_map(put, moment, batch);
                batch.answer(reply, answer);
            }
            OrchestratorCommand::Remove(name, reply) => {
                let answer = self.orchestrators.remove(&name, batch);
                batch.answer(reply, answer);
            }
        }
    }

    /// Applies a change of an allocation, if it belongs to the work of an orchestrator. Returns
    /// whether it does.
    pub(super) fn apply_orchestrated_allocation(
        &mut self,
        entry: &AllocationEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> bool {
        let (has_orchestrator, hold_end) =
            self.orchestrators.apply_allocation(entry, moment, batch);
        self.hold_ends.extend(hold_end);
        has_orchestrator
    }

    pub(super) fn refresh_orchestrated(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let context = RefreshContext {
            synced: self.allocations.has_update(),
            verdicts: &self.shared.verdicts.read(),
            accounts: &self.shared.accounts,
            stop_grace_ms: self.shared.settings.stop_grace_ms,
        };
        self.orchestrators.refresh(&context, moment, batch);
    }
}
