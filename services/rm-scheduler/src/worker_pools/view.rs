//! Converts worker pools to responses of the API.

use hayward_publication::Moment;
use hayward_rm_scheduler_api::worker_pools::{
    EventList, FinalStatus, OwnerView, PoolMode, PoolStatus, PoolView, WorkerState, WorkerView,
};
use hayward_rm_scheduler_worker_pools::{Final, Mode, State};
use hayward_vocabulary::WorkId;

use super::now;
use crate::error::PoolRefusal;
use crate::model::PoolRecord;
use crate::working_set::Ledger;
use crate::working_set::worker_pools::work_id;

impl Ledger {
    pub(crate) fn pool_views(&self, moment: &Moment) -> Vec<PoolView> {
        let all = self.worker_pools.by_id.values();
        all.map(|record| self.view_of_pool(record, moment))
            .collect()
    }

    pub(crate) fn pool_view(&self, id: &WorkId, moment: &Moment) -> Result<PoolView, PoolRefusal> {
        let record = self
            .worker_pools
            .by_id
            .get(id)
            .ok_or(PoolRefusal::NotFound)?;
        Ok(self.view_of_pool(record, moment))
    }

    fn view_of_pool(&self, record: &PoolRecord, moment: &Moment) -> PoolView {
        let PoolRecord {
            description, pool, ..
        } = record;
        let (counts, owner) = (pool.counts(), &pool.owner);
        let oldest = pool.requested.first();
        let oldest = oldest.and_then(|number| work_id(&description.id, *number));
        let verdict = oldest.and_then(|work| self.verdicts.get(&work));
        let stopped = pool.stopped.as_ref();
        PoolView {
            id: description.id.clone(),
            job_id: description.job_id.clone(),
            mode: match pool.mode {
                Mode::Managed => PoolMode::Managed,
                Mode::Standalone => PoolMode::Standalone,
            },
            user: description.user.clone(),
            class: description.class.clone(),
            worker_spec: description.spec.clone(),
            designated: pool.designated,
            version: pool.version,
            requested: counts.requested,
            launching: counts.launching,
            started: counts.started,
            returning: counts.returning,
            foreign: counts.foreign,
            idle_blocked: counts.idle_blocked,
            deficit: pool.missing(),
            failed_so_far: pool.failed_so_far,
            max_failed: pool.max_failed,
            progress_milli: pool.progress_milli(),
            cooling_down: pool.cooldown_until.is_some(),
            waits: verdict.map(|verdict| verdict.detail.clone()),
            owner: OwnerView {
                bound: owner.bound,
                epoch: owner.epoch,
                address: owner.bound.then(|| owner.address.clone()),
                connection: owner.connection,
            },
            manager_epoch: moment.epoch,
            ready: pool.is_ready(now(moment)),
            status: match stopped {
                None => PoolStatus::Running,
                Some(_) => PoolStatus::Stopped,
            },
            final_status: stopped.and_then(|stopped| stopped.status).map(final_status),
            final_message: stopped.map(|stopped| stopped.message.clone()),
            event_seq: pool.event_seq,
            created_at: description.created_at,
        }
    }

    pub(crate) fn pool_workers(&self, id: &WorkId) -> Result<Vec<WorkerView>, PoolRefusal> {
        let record = self
            .worker_pools
            .by_id
            .get(id)
            .ok_or(PoolRefusal::NotFound)?;
        let all = record.pool.workers.iter();
        let view = |(id, worker): (&_, &hayward_rm_scheduler_worker_pools::Worker)| WorkerView {
            id: Clone::clone(id),
            state: match worker.state {
                State::Launching => WorkerState::Launching,
                State::Started => WorkerState::Started,
                State::Returning => WorkerState::Returning,
                State::Foreign => WorkerState::Foreign,
            },
            node: worker.node.clone(),
            granted_at: self
                .allocations
                .get(id)
                .map(|record| record.entry.granted_at),
            reported_by_epoch: worker.reported_by,
            idle: worker.idle,
            marked: worker.is_node_blocked,
        };
        Ok(all.map(view).collect())
    }

    /// Returns the events after this number.
    pub(crate) fn pool_events(&self, id: &WorkId, after: u64) -> Result<EventList, PoolRefusal> {
        let record = self
            .worker_pools
            .by_id
            .get(id)
            .ok_or(PoolRefusal::NotFound)?;
        let newest = record.pool.event_seq;
        let oldest = record.events.front().map_or(newest + 1, |event| event.seq);
        if after > newest || after + 1 < oldest {
            return Err(PoolRefusal::EventsExpired {
                after,
                oldest,
                newest,
            });
        }
        let events = record.events.iter().filter(|event| event.seq > after);
        Ok(EventList {
            events: events.cloned().collect(),
            after: newest,
        })
    }
}

fn final_status(status: Final) -> FinalStatus {
    match status {
        Final::Succeeded => FinalStatus::Succeeded,
        Final::Failed => FinalStatus::Failed,
        Final::Killed => FinalStatus::Killed,
        Final::Undefined => FinalStatus::Undefined,
    }
}
