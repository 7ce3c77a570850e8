//! The copy of the fleet that a forecast moves from one round to the next.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, WorkId, WorkKind};

use crate::{
    Plan, Snapshot,
    input::snapshot::{Allocation, Demand},
    output::plan::Grant,
    state::budget,
};

/// Prefix of the ids of forecast allocations. They sort after all ids of the fleet, which continue
/// with a hexadecimal digit. A later grant has a greater id, as in the fleet.
const FORECAST_PREFIX: &str = "alc_what-if-";

/// Milliseconds of a task of unknown duration. The value is so large that prediction limits no job
///
const UNKNOWN_TASK_MS: u64 = 3_600_000;

/// Returns whether the allocation exists only in the forecast.
pub(super) fn is_forecast(id: &AllocationId) -> bool {
    id.as_str().starts_with(FORECAST_PREFIX)
}

pub(super) struct SimulatedFleet<'a> {
    snapshot: Snapshot,
    /// Duration of one task in milliseconds, by work that has not finished one.
    task_ms: &'a BTreeMap<WorkId, u64>,
    /// Number of forecast allocations so far.
    started_count: u64,
}

impl<'a> SimulatedFleet<'a> {
    pub fn new(snapshot: Snapshot, task_ms: &'a BTreeMap<WorkId, u64>) -> Self {
        Self {
            snapshot,
            task_ms,
            started_count: 0,
        }
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Carries out a plan and advances the time by one cycle. Returns true if the fleet changed.
    pub fn carry_out(&mut self, plan: &Plan) -> bool {
        let mut changed = !plan.is_empty();
        let vacated: BTreeSet<&AllocationId> = plan
            .vacates
            .iter()
            .map(|vacate| &vacate.allocation)
            .collect();
        let now = self.snapshot.now;
        self.snapshot.allocations.retain(|id, allocation| {
            let leaves = allocation.leaving || vacated.contains(id);
            changed |= leaves;
            !leaves
        });
        for allocation in self.snapshot.allocations.values_mut() {
            changed |= !allocation.running;
            allocation.running = true;
            allocation.running_since.get_or_insert(now);
        }
        for grant in &plan.grants {
            self.start(grant);
        }
        changed |= self.finish_first_tasks();
        // A forecast covers much less than an hour, so preemptions stay in the budget (B5).
        let preempted_quanta = &mut self.snapshot.preempted_quanta;
        budget::add_receipts(preempted_quanta, &self.snapshot.nodes, &plan.receipts);
        self.snapshot.carried = plan.carried.clone();
        self.snapshot.round += 1;
        self.snapshot.now = now.plus_ms(self.snapshot.tunables.cycle_ms);
        changed
    }

    /// Adds the allocation of a grant. Its process runs at once.
    fn start(&mut self, grant: &Grant) {
        self.started_count += 1;
        let now = self.snapshot.now;
        let allocation = Allocation {
            running: true,
            running_since: Some(now),
            ..grant.to_allocation(now)
        };
        let id = AllocationId::new(format!("{FORECAST_PREFIX}{:09}", self.started_count))
            .expect("letters, digits and signs that a name may have");
        self.snapshot.allocations.insert(id, allocation);
    }

    /// Ends the start-up of jobs that run: each finishes a first task. Returns true if any
    /// job did.
    fn finish_first_tasks(&mut self) -> bool {
        let (demand, mut changed) = (&mut self.snapshot.demand, false);
        let is_starting = |demand: &Demand| {
            demand.kind == WorkKind::Job && (demand.task_ms.is_none() || !demand.runnable)
        };
        for allocation in self.snapshot.allocations.values() {
            let Some(demand) = demand
                .get_mut(&allocation.work)
                .filter(|demand| is_starting(demand))
            else {
                continue;
            };
            let task_ms = self.task_ms.get(&allocation.work).copied();
            demand
                .task_ms
                .get_or_insert(task_ms.unwrap_or(UNKNOWN_TASK_MS));
            demand.runnable = true;
            changed = true;
        }
        changed
    }
}
