//! Allocations of orchestrators that start their own processes.
//!
//! Such an allocation has no container. Its state is taken from the map of work that the
//! orchestrator maintains. After an order to leave, the allocation holds its space until the map
//! shows its process as complete or absent. Withdrawing the work frees the space too.

use hayward_job_converter_api::DemandEntry;
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::{AllocationEntry, AllocationState};
use hayward_vocabulary::{AllocationId, Exit, ExitCause, WorkId, WorkKind};

use crate::model::AllocationRecord;
use crate::store::Rows;
use crate::working_set::Ledger;

/// Returns true if Hayward starts the process once and the work ends with it.
pub fn runs_once(demand: &DemandEntry) -> bool {
    demand.orchestrated.is_some() && demand.launch.is_some() && demand.kind == WorkKind::Service
}

/// Returns true if the process ended without an order to leave and without a fault of its node.
pub fn ended_itself(record: &AllocationRecord) -> bool {
    let cause = record.entry.exit.as_ref().map(|exit| exit.cause);
    let ended_from_outside = matches!(cause, Some(ExitCause::Node | ExitCause::Intended));
    record.entry.vacate.is_none() && !ended_from_outside
}

/// Returns true if the orchestrator starts the processes. A reservation has no processes.
pub fn starts_own_processes(demand: &DemandEntry) -> bool {
    let orchestrated = demand.orchestrated.as_deref();
    orchestrated.is_some_and(|orchestrated| orchestrated.own_processes)
        && demand.kind != WorkKind::Reservation
}

impl Ledger {
    /// Returns true if only the orchestrator can report the end of the process.
    pub(crate) fn ends_by_orchestrator(&self, entry: &AllocationEntry) -> bool {
        let demand = self.followed.demand().get(entry.work.as_str());
        entry.launch.is_none() && demand.is_some_and(starts_own_processes)
    }

    /// Applies the newest map to the allocations of one piece of work.
    pub(crate) fn apply_orchestrator_map(
        &mut self,
        demand: &DemandEntry,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(orchestrated) = &demand.orchestrated else {
            return;
        };
        // The map settles an allocation when it shows the process as complete or absent.
        for id in &demand.settled {
            self.end_allocation_without_launch(&demand.work, id, moment, batch);
        }
        for id in &orchestrated.running {
            self.mark_running(&demand.work, id, moment, batch);
        }
    }

    /// Ends the allocations of withdrawn work that were already ordered to leave. The next round
    /// orders all other allocations of the work to leave.
    pub(crate) fn end_leaving_allocations(
        &mut self,
        work: &WorkId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let ids = self.allocations.ids_of_work(work);
        let is_leaving = |it: &AllocationRecord| it.entry.vacate.is_some();
        for id in ids {
            if self
                .allocation_without_launch(work, &id)
                .is_some_and(|it| is_leaving(&it))
            {
                self.end_allocation_without_launch(work, &id, moment, batch);
            }
        }
    }

    /// Returns the allocation if it belongs to this work and has no launch.
    fn allocation_without_launch(
        &self,
        work: &WorkId,
        id: &AllocationId,
    ) -> Option<AllocationRecord> {
        let record = self.allocations.get(id)?;
        let belongs_to_work = record.entry.work == *work && record.entry.launch.is_none();
        belongs_to_work.then(|| record.clone())
    }

    fn end_allocation_without_launch(
        &mut self,
        work: &WorkId,
        id: &AllocationId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let Some(mut record) = self
            .allocation_without_launch(work, id)
            .filter(|it| it.entry.holds())
        else {
            return;
        };
        let (cause, message) = match record.entry.vacate {
            Some(_) => (ExitCause::Intended, "its orchestrator ended it as ordered"),
            None => (ExitCause::Success, "its orchestrator reported its end"),
        };
        let exit = Exit::of(cause, message.to_owned());
        self.record_end(&record, Some(&exit), moment, batch);
        record.entry.state = AllocationState::Ended;
        record.entry.exit = Some(exit);
        self.set_allocation(record, batch);
    }

    fn mark_running(
        &mut self,
        work: &WorkId,
        id: &AllocationId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let is_assigned = |it: &AllocationRecord| it.entry.state == AllocationState::Assigned;
        let Some(mut record) = self.allocation_without_launch(work, id).filter(is_assigned) else {
            return;
        };
        record.entry.state = AllocationState::Running;
        record.entry.running_since.get_or_insert(moment.now);
        self.fulfil_receipts(&record.entry, moment, batch);
        self.set_allocation(record, batch);
    }
}
