//! Handlers of commands to worker pools, one function each.

use std::collections::{BTreeSet, VecDeque};

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::pools::{
    CheckAnswer, EventList, IdleAnswer, OwnerConnected, SizeAnswer,
};
use hayward_rm_scheduler_worker_pools::{Caller, Connect, Pool, Refusal as Fence, SizeRequest};
use hayward_vocabulary::{AllocationId, WorkId};

use super::now;
use crate::command::{
    CreatePool, CreatedPool, PoolCall, PoolChange, PoolCommand, StopPool, StoppedPool,
};
use crate::error::PoolRefusal;
use crate::model::{PoolDescription, PoolRecord};
use crate::store::Rows;
use crate::working_set::Ledger;
use crate::working_set::worker_pools::rules;

/// Most pools at the same time, including stopped pools that can still be read.
const MAX_POOLS: usize = 10_000;
/// Milliseconds for which a stopped pool can be read.
const STOPPED_RETENTION_MS: u64 = 7 * 24 * 3_600 * 1_000;

impl Ledger {
    pub(crate) fn apply_pool_command(
        &mut self,
        command: PoolCommand,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        match command {
            PoolCommand::Create(order, reply) => {
                let answer = self.create_pool(*order, moment, batch);
                batch.answer(reply, answer);
            }
            PoolCommand::List(reply) => batch.answer(reply, Ok(self.pool_views(moment))),
            PoolCommand::Show(pool, reply) => batch.answer(reply, self.pool_view(&pool, moment)),
            PoolCommand::ListWorkers(pool, reply) => {
                batch.answer(reply, self.pool_workers(&pool));
            }
            PoolCommand::ReadEvents {
                pool,
                from,
                after,
                reply,
            } => {
                let answer = self.read_pool_events(&pool, from, after, moment);
                batch.answer(reply, answer);
            }
            PoolCommand::ConnectOwner {
                pool,
                connect,
                reply,
            } => {
                let answer = self.connect_owner(&pool, &connect, moment, batch);
                batch.answer(reply, answer);
            }
            PoolCommand::DisconnectOwner { pool, epoch, reply } => {
                let answer = self.disconnect_owner(&pool, epoch, moment, batch);
                batch.answer(reply, answer);
            }
            PoolCommand::Change(call, change) => {
                self.apply_pool_change(&call, change, moment, batch);
            }
        }
    }

    fn apply_pool_change(
        &mut self,
        call: &PoolCall,
        change: PoolChange,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        match change {
            PoolChange::SetSize(size, reply) => {
                let answer = self.size_pool(call, &size, moment, batch);
                batch.answer(reply, answer);
            }
            PoolChange::WorkerStarted(worker, reply) => {
                let answer = self.worker_started(call, &worker, moment, batch);
                batch.answer(reply, answer);
            }
            PoolChange::RemoveWorker(worker, reply) => {
                let answer = self.remove_worker(call, &worker, moment, batch);
                batch.answer(reply, answer);
            }
            PoolChange::ReportIdle(idle, reply) => {
                let answer = self.workers_idle(call, &idle, moment, batch);
                batch.answer(reply, answer);
            }
            PoolChange::Check(reply) => {
                let answer = self.check_pool(call, moment, batch);
                batch.answer(reply, answer);
            }
            PoolChange::Stop(stop, reply) => {
                let answer = self.stop_pool(call, &stop, moment, batch);
                batch.answer(reply, answer);
            }
        }
    }

    fn create_pool(
        &mut self,
        order: CreatePool,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<CreatedPool, PoolRefusal> {
        let mut all = self.worker_pools.by_id.values();
        if let Some(record) = all.find(|record| record.about.made_by == order.about.made_by) {
            if record.about.made_from != order.about.made_from {
                return Err(PoolRefusal::OtherRequest);
            }
            let pool = self.pool_view(&record.about.id, moment)?;
            return Ok(CreatedPool {
                pool,
                replayed: true,
            });
        }
        if !batch.is_dry_run() {
            self.forget_old_pools(moment, batch);
        }
        if self.worker_pools.by_id.len() >= MAX_POOLS {
            return Err(PoolRefusal::TooMany(MAX_POOLS));
        }
        if let Some(named) = &order.about.class {
            self.has_class(named)?;
        }
        let rules = rules(&self.context.settings);
        let pool = Pool::new(order.mode, order.initial_size, order.max_failed, rules);
        let about = PoolDescription {
            created_at: moment.now,
            ..order.about
        };
        let id = about.id.clone();
        batch.rows.pools.made(&about, &pool);
        let record = PoolRecord::new(about, pool, VecDeque::new());
        self.worker_pools.by_id.insert(id.clone(), record);
        let pool = self.pool_view(&id, moment);
        if batch.is_dry_run() {
            self.worker_pools.by_id.remove(&id);
        }
        Ok(CreatedPool {
            pool: pool?,
            replayed: false,
        })
    }

    fn has_class(&self, named: &str) -> Result<(), PoolRefusal> {
        let classes = &self.snapshot.classes;
        if classes.contains_key(named) {
            return Ok(());
        }
        Err(PoolRefusal::NoClass {
            named: named.to_owned(),
            known: classes.keys().cloned().collect(),
        })
    }

    /// Removes pools that were stopped long ago and have no workers left.
    fn forget_old_pools(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let old = |record: &PoolRecord| {
            let stopped = record.about.stopped_at;
            let age_ms = stopped.map_or(0, |at| moment.now.ms_since(at));
            age_ms > STOPPED_RETENTION_MS && record.pool.counts().returning == 0
        };
        let old = self
            .worker_pools
            .by_id
            .values()
            .filter(|record| old(record));
        let old: Vec<WorkId> = old.map(|record| record.about.id.clone()).collect();
        for id in old {
            self.worker_pools.by_id.remove(&id);
            batch.rows.pools.forgotten.insert(id);
        }
    }

    fn connect_owner(
        &mut self,
        id: &WorkId,
        connect: &Connect,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<OwnerConnected, PoolRefusal> {
        let connected =
            self.change_pool(id, moment, batch, |pool, now| pool.connect(connect, now))?;
        Ok(OwnerConnected {
            connection: connected.connection,
            accepted: connected.accepted,
            foreign: connected.foreign,
            returning: connected.returning,
            event_seq: connected.event_seq,
            pool: self.pool_view(id, moment)?,
        })
    }

    fn disconnect_owner(
        &mut self,
        id: &WorkId,
        epoch: u64,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), PoolRefusal> {
        self.change_pool(id, moment, batch, |pool, _| pool.leave(epoch))
    }

    fn size_pool(
        &mut self,
        call: &PoolCall,
        wish: &SizeRequest,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<SizeAnswer, PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            let done = pool.set_size(call.from, wish, now)?;
            Ok::<_, Fence>(SizeAnswer {
                size: pool.designated,
                requested_now: done.requested_now,
                withdrawn_now: done.withdrawn_now,
                released: done.released,
                version: pool.version,
            })
        })
    }

    fn worker_started(
        &mut self,
        call: &PoolCall,
        worker: &AllocationId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<bool, PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            pool.started(call.from, worker, now)
        })
    }

    fn remove_worker(
        &mut self,
        call: &PoolCall,
        worker: &AllocationId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            pool.remove(call.from, worker, now)
        })
    }

    fn workers_idle(
        &mut self,
        call: &PoolCall,
        idle: &BTreeSet<AllocationId>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<IdleAnswer, PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            let done = pool.report_idle(call.from, idle, now)?;
            Ok::<_, Fence>(IdleAnswer {
                idle_blocked: done.idle_blocked,
                requested_now: done.requested_now,
            })
        })
    }

    fn check_pool(
        &mut self,
        call: &PoolCall,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<CheckAnswer, PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            let checked = pool.check(call.from, now)?;
            Ok::<_, Fence>(CheckAnswer {
                missing: checked.missing,
                requested_now: checked.requested_now,
            })
        })
    }

    fn stop_pool(
        &mut self,
        call: &PoolCall,
        stop: &StopPool,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<StoppedPool, PoolRefusal> {
        let was_running = self.change_pool(&call.pool, moment, batch, |pool, now| {
            pool.stop(call.from, stop.status, &stop.message, now)
        })?;
        Ok(StoppedPool {
            pool: self.pool_view(&call.pool, moment)?,
            was_running,
        })
    }

    /// Returns the events for a reader. An owner that identifies itself is fenced. It may read a
    /// stopped pool until it has read every event and none can follow.
    fn read_pool_events(
        &mut self,
        id: &WorkId,
        from: Option<Caller>,
        after: u64,
        moment: &Moment,
    ) -> Result<EventList, PoolRefusal> {
        let list = self.pool_events(id, after)?;
        let Some(from) = from else {
            return Ok(list);
        };
        let record = self
            .worker_pools
            .by_id
            .get_mut(id)
            .ok_or(PoolRefusal::Absent)?;
        let more = !list.events.is_empty() || record.pool.counts().returning > 0;
        match record.pool.fence(from, now(moment)) {
            Ok(()) => Ok(list),
            Err(Fence::Stopped) if more => Ok(list),
            Err(fence) => Err(fence.into()),
        }
    }
}
