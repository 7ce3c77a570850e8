//! Connects the working set to the work of orchestrators.

use hayward_publication::committer::{Batch, Moment};
use hayward_rm_scheduler_api::AllocationEntry;

use super::Ledger;
use crate::orchestrators::commands::{Limits, OrchestratorCommand};
use crate::orchestrators::refresh::Known;
use crate::store::Rows;

impl Ledger {
    pub(super) fn orchestrate(
        &mut self,
        command: OrchestratorCommand,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        match command {
            OrchestratorCommand::Create(order, reply) => {
                let answer = self.orchestrators.create(order, moment, batch);
                batch.answer(reply, answer);
            }
            OrchestratorCommand::Put(mut put, reply) => {
                let settings = &self.shared.settings;
                put.limits = Limits {
                    most_open: settings.max_open_work,
                    others_open: self.works.len(),
                    least_ms: settings.orchestrator_least_ms,
                };
                let answer = self.orchestrators.put(put, moment, batch);
                batch.answer(reply, answer);
            }
            OrchestratorCommand::Remove(name, reply) => {
                let answer = self.orchestrators.remove(&name, batch);
                batch.answer(reply, answer);
            }
        }
    }

    /// Applies a change of a share. Returns true if the allocation belongs to an orchestrator.
    pub(super) fn absorb_share(
        &mut self,
        entry: &AllocationEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> bool {
        let (ours, held) = self.orchestrators.absorb_share(entry, moment, batch);
        self.holds.extend(held);
        ours
    }

    pub(super) fn refresh_orchestrated(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let known = Known {
            synced: self.allocations.heard(),
            verdicts: &self.shared.verdicts.read(),
            stop_grace_ms: self.shared.settings.stop_grace_ms,
        };
        self.orchestrators.refresh(&known, moment, batch);
    }
}
