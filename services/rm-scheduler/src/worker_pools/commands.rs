//! Handlers of commands to worker pools, one function each.

use std::collections::{BTreeSet, VecDeque};

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::worker_pools::{
    CheckAnswer, EventList, IdleAnswer, OwnerConnected, SizeAnswer,
};
use hayward_rm_scheduler_worker_pools::{
    Caller, Connect, Pool, Refusal as FenceRefusal, SizeRequest,
};
use hayward_vocabulary::{AllocationId, WorkId};

use super::now;
use crate::command::{
    CreatePool, CreatedPool, PoolCall, PoolChange, PoolCommand, StopPool, StoppedPool,
};
use crate::error::PoolRefusal;
use crate::model::{PoolDescription, PoolRecord};
use crate::store::Rows;
use crate::working_set::Ledger;
use crate::working_set::worker_pools::pool_rules;

/// Maximum number of pools, including stopped pools that can still be read.
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
            PoolCommand::Create(request, reply) => {
                let response = self.create_pool(*request, moment, batch);
                batch.answer(reply, response);
            }
            PoolCommand::List(reply) => batch.answer(reply, Ok(self.pool_views(moment))),
            PoolCommand::Show(pool, reply) => batch.answer(reply, self.pool_view(&pool, moment)),
            PoolCommand::ListWorkers(pool, reply) => {
                batch.answer(reply, self.pool_workers(&pool));
            }
            PoolCommand::ReadEvents {
                pool,
                caller,
                after,
                reply,
            } => {
                let response = self.read_pool_events(&pool, caller, after, moment);
                batch.answer(reply, response);
            }
            PoolCommand::ConnectOwner {
                pool,
                connect,
                reply,
            } => {
                let response = self.connect_owner(&pool, &connect, moment, batch);
                batch.answer(reply, response);
            }
            PoolCommand::DisconnectOwner { pool, epoch, reply } => {
                let response = self.disconnect_owner(&pool, epoch, moment, batch);
                batch.answer(reply, response);
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
                let response = self.set_pool_size(call, &size, moment, batch);
                batch.answer(reply, response);
            }
            PoolChange::WorkerStarted(worker, reply) => {
                let response = self.record_worker_start(call, &worker, moment, batch);
                batch.answer(reply, response);
            }
            PoolChange::RemoveWorker(worker, reply) => {
                let response = self.remove_worker(call, &worker, moment, batch);
                batch.answer(reply, response);
            }
            PoolChange::ReportIdle(idle, reply) => {
                let response = self.report_idle_workers(call, &idle, moment, batch);
                batch.answer(reply, response);
            }
            PoolChange::Check(reply) => {
                let response = self.check_pool(call, moment, batch);
                batch.answer(reply, response);
            }
            PoolChange::Stop(stop, reply) => {
                let response = self.stop_pool(call, &stop, moment, batch);
                batch.answer(reply, response);
            }
        }
    }

    /// Creates a pool, or returns the pool that an earlier request with the same key created.
    fn create_pool(
        &mut self,
        request: CreatePool,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<CreatedPool, PoolRefusal> {
        let mut all = self.worker_pools.by_id.values();
        if let Some(record) =
            all.find(|record| record.description.key_digest == request.description.key_digest)
        {
            if record.description.request_digest != request.description.request_digest {
                return Err(PoolRefusal::KeyReused);
            }
            let pool = self.pool_view(&record.description.id, moment)?;
            return Ok(CreatedPool {
                pool,
                replayed: true,
            });
        }
        if !batch.is_dry_run() {
            self.remove_old_pools(moment, batch);
        }
        if self.worker_pools.by_id.len() >= MAX_POOLS {
            return Err(PoolRefusal::TooMany(MAX_POOLS));
        }
        if let Some(class) = &request.description.class {
            self.require_class(class)?;
        }
        let rules = pool_rules(&self.context.settings);
        let pool = Pool::new(
            request.mode,
            request.initial_size,
            request.max_failed,
            rules,
        );
        let description = PoolDescription {
            created_at: moment.now,
            ..request.description
        };
        let id = description.id.clone();
        batch.rows.pools.insert_pool(&description, &pool);
        let record = PoolRecord::new(description, pool, VecDeque::new());
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

    fn require_class(&self, class: &str) -> Result<(), PoolRefusal> {
        let classes = &self.snapshot.classes;
        if classes.contains_key(class) {
            return Ok(());
        }
        Err(PoolRefusal::NoClass {
            class: class.to_owned(),
            known: classes.keys().cloned().collect(),
        })
    }

    /// Removes pools that were stopped long ago and have no workers left.
    fn remove_old_pools(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let is_old = |record: &PoolRecord| {
            let stopped = record.description.stopped_at;
            let age_ms = stopped.map_or(0, |at| moment.now.ms_since(at));
            age_ms > STOPPED_RETENTION_MS && record.pool.counts().returning == 0
        };
        let old = self
            .worker_pools
            .by_id
            .values()
            .filter(|record| is_old(record));
        let old: Vec<WorkId> = old.map(|record| record.description.id.clone()).collect();
        for id in old {
            self.worker_pools.by_id.remove(&id);
            batch.rows.pools.removed.insert(id);
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

    fn set_pool_size(
        &mut self,
        call: &PoolCall,
        request: &SizeRequest,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<SizeAnswer, PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            let result = pool.set_size(call.caller, request, now)?;
            Ok::<_, FenceRefusal>(SizeAnswer {
                size: pool.designated,
                requested_now: result.requested_now,
                withdrawn_now: result.withdrawn_now,
                released: result.released,
                version: pool.version,
            })
        })
    }

    fn record_worker_start(
        &mut self,
        call: &PoolCall,
        worker: &AllocationId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<bool, PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            pool.register_worker(call.caller, worker, now)
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
            pool.remove(call.caller, worker, now)
        })
    }

    fn report_idle_workers(
        &mut self,
        call: &PoolCall,
        idle: &BTreeSet<AllocationId>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<IdleAnswer, PoolRefusal> {
        self.change_pool(&call.pool, moment, batch, |pool, now| {
            let result = pool.report_idle(call.caller, idle, now)?;
            Ok::<_, FenceRefusal>(IdleAnswer {
                idle_blocked: result.idle_blocked,
                requested_now: result.requested_now,
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
            let checked = pool.check(call.caller, now)?;
            Ok::<_, FenceRefusal>(CheckAnswer {
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
            pool.stop(call.caller, stop.status, &stop.message, now)
        })?;
        Ok(StoppedPool {
            pool: self.pool_view(&call.pool, moment)?,
            was_running,
        })
    }

    /// Returns the events after the number `after`. If the caller is an owner, its connection must
    /// be the newest one of the pool. The owner may read a stopped pool until it has read every
    /// event and no event can follow.
    fn read_pool_events(
        &mut self,
        id: &WorkId,
        caller: Option<Caller>,
        after: u64,
        moment: &Moment,
    ) -> Result<EventList, PoolRefusal> {
        let list = self.pool_events(id, after)?;
        let Some(caller) = caller else {
            return Ok(list);
        };
        let record = self
            .worker_pools
            .by_id
            .get_mut(id)
            .ok_or(PoolRefusal::NotFound)?;
        let has_more = !list.events.is_empty() || record.pool.counts().returning > 0;
        match record.pool.fence(caller, now(moment)) {
            Ok(()) => Ok(list),
            Err(FenceRefusal::Stopped) if has_more => Ok(list),
            Err(refusal) => Err(refusal.into()),
        }
    }
}
