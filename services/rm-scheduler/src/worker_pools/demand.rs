//! Requests workers from the planner: each wanted worker of a pool is one work in the snapshot.

use hayward_job_converter_api::DemandEntry;
use hayward_publication::Batch;
use hayward_rm_scheduler_domain::snapshot::Demand;
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{Size, WhenUnreachable, WorkId, WorkKind};

use crate::model::PoolDescription;
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;
use crate::working_set::worker_pools::work_id;

impl Ledger {
    /// Adds the missing works of a pool to the snapshot, and withdraws the works that are no longer
    /// wanted.
    pub(super) fn update_pool_demand(&mut self, id: &WorkId, batch: &mut Batch<Rows>) {
        self.request_workers(id);
        let Some(record) = self.worker_pools.by_id.get_mut(id) else {
            return;
        };
        let wanted = record.pool.wanted_numbers();
        let unwanted: Vec<u64> = record
            .numbers_in_snapshot
            .difference(&wanted)
            .copied()
            .collect();
        record
            .numbers_in_snapshot
            .retain(|number| wanted.contains(number));
        for work in unwanted
            .into_iter()
            .filter_map(|number| work_id(id, number))
        {
            self.withdraw_work(&work, batch);
            self.timing.request_round();
        }
    }

    /// Adds the works of a pool that are wanted and not yet in the snapshot.
    pub(crate) fn request_workers(&mut self, id: &WorkId) {
        let Some(record) = self.worker_pools.by_id.get_mut(id) else {
            return;
        };
        let wanted = record.pool.wanted_numbers();
        let missing: Vec<u64> = wanted
            .difference(&record.numbers_in_snapshot)
            .copied()
            .collect();
        record.numbers_in_snapshot.extend(&missing);
        let description = record.description.clone();
        for number in missing {
            let Some(work) = work_id(id, number) else {
                continue;
            };
            let entry = worker_demand(&description, work.clone());
            let avoids = self.followed.avoided_nodes(&work, &entry.user);
            self.snapshot
                .set_demand(work, translate::demand(&entry, avoids));
            self.timing.request_round();
        }
    }

    /// Updates the nodes that a worker avoids.
    pub(crate) fn refresh_worker(&mut self, work: &WorkId) {
        if let Some(demand) = self.snapshot.demand.get(work) {
            let avoids = self.followed.avoided_nodes(work, &demand.user);
            let demand = Demand {
                avoids,
                ..demand.clone()
            };
            self.snapshot.set_demand(work.clone(), demand);
        }
    }

    /// Adds the works of all pools in a new term.
    pub(crate) fn request_all_workers(&mut self) {
        let pools: Vec<WorkId> = self.worker_pools.by_id.keys().cloned().collect();
        for id in &pools {
            self.request_workers(id);
        }
    }
}

/// Returns the demand of one worker.
fn worker_demand(description: &PoolDescription, work: WorkId) -> DemandEntry {
    let spec = description.spec.as_ref();
    DemandEntry {
        work,
        kind: WorkKind::Service,
        user: description.user.clone(),
        class: description.class.clone(),
        submitted_at: description.created_at,
        size: spec
            .and_then(|spec| spec.size.clone())
            .unwrap_or_else(|| Size::memory(GIB)),
        max_processes: 1,
        remaining_tasks: 1,
        threads: 1,
        task_ms: None,
        machines: spec.map_or_else(Vec::new, |spec| spec.machines.clone()),
        // Workers of a pool spread over nodes as instances of a service do.
        service: Some(description.id.clone()),
        disruption_limit: None,
        when_unreachable: WhenUnreachable::default(),
        processor: None,
        apart: None,
        host: None,
        queued: None,
        orchestrated: None,
        part: None,
        settled: std::collections::BTreeSet::new(),
        launch: None,
        traceparent: None,
    }
}
