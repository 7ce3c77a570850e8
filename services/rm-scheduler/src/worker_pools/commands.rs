//! Commands to worker pools: one function each.

use std::collections::{BTreeSet, VecDeque};

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::pools::{
    CheckAnswer, EventList, IdleAnswer, OwnerConnected, PoolView, SizeAnswer,
};
use hayward_rm_scheduler_worker_pools::{
    Caller, Connect, Final, Mode, Pool, Refusal as Fence, SizeRequest,
};
use hayward_vocabulary::{AllocationId, WorkId};

use super::{PoolDescription, PoolRecord, Refusal, now, rules};
use crate::store::Rows;
use crate::working_set::Ledger;

/// Pools at the same time, with those that stopped lately.
const MAX_POOLS: usize = 10_000;
/// Milliseconds for which a stopped pool can be read.
const STOPPED_KEPT_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// `POST /v1/pools`
pub struct CreatePool {
    pub about: PoolDescription,
    pub mode: Mode,
    pub initial_size: u64,
    pub max_failed: Option<i64>,
}

/// A new pool, or the one that the same request made before.
pub struct CreatedPool {
    pub pool: PoolView,
    pub replayed: bool,
}

impl Ledger {
    pub(crate) fn create_pool(
        &mut self,
        order: CreatePool,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<CreatedPool, Refusal> {
        let mut all = self.worker_pools.by_id.values();
        if let Some(record) = all.find(|record| record.about.made_by == order.about.made_by) {
            if record.about.made_from != order.about.made_from {
                return Err(Refusal::OtherRequest);
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
            return Err(Refusal::TooMany(MAX_POOLS));
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

    fn has_class(&self, named: &str) -> Result<(), Refusal> {
        let classes = &self.snapshot.classes;
        if classes.contains_key(named) {
            return Ok(());
        }
        Err(Refusal::NoClass {
            named: named.to_owned(),
            known: classes.keys().cloned().collect(),
        })
    }

    /// Removes pools that were stopped long ago and have no workers left.
    fn forget_old_pools(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let old = |record: &PoolRecord| {
            let stopped = record.about.stopped_at;
            let age_ms = stopped.map_or(0, |at| moment.now.ms_since(at));
            age_ms > STOPPED_KEPT_MS && record.pool.counts().returning == 0
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

    pub(crate) fn connect_owner(
        &mut self,
        id: &WorkId,
        connect: &Connect,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<OwnerConnected, Refusal> {
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

    pub(crate) fn owner_leaves(
        &mut self,
        id: &WorkId,
        epoch: u64,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        self.change_pool(id, moment, batch, |pool, _| pool.leave(epoch))
    }

    pub(crate) fn size_pool(
        &mut self,
        id: &WorkId,
        (from, wish): (Caller, &SizeRequest),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<SizeAnswer, Refusal> {
        self.change_pool(id, moment, batch, |pool, now| {
            let done = pool.set_size(from, wish, now)?;
            Ok::<_, Fence>(SizeAnswer {
                size: pool.designated,
                requested_now: done.requested_now,
                withdrawn_now: done.withdrawn_now,
                released: done.released,
                version: pool.version,
            })
        })
    }

    pub(crate) fn worker_started(
        &mut self,
        id: &WorkId,
        (from, worker): (Caller, &AllocationId),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<bool, Refusal> {
        self.change_pool(id, moment, batch, |pool, now| {
            pool.started(from, worker, now)
        })
    }

    pub(crate) fn remove_worker(
        &mut self,
        id: &WorkId,
        (from, worker): (Caller, &AllocationId),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        self.change_pool(id, moment, batch, |pool, now| {
            pool.remove(from, worker, now)
        })
    }

    pub(crate) fn workers_idle(
        &mut self,
        id: &WorkId,
        (from, idle): (Caller, &BTreeSet<AllocationId>),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<IdleAnswer, Refusal> {
        self.change_pool(id, moment, batch, |pool, now| {
            let done = pool.report_idle(from, idle, now)?;
            Ok::<_, Fence>(IdleAnswer {
                idle_blocked: done.idle_blocked,
                requested_now: done.requested_now,
            })
        })
    }

    pub(crate) fn check_pool(
        &mut self,
        id: &WorkId,
        from: Caller,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<CheckAnswer, Refusal> {
        self.change_pool(id, moment, batch, |pool, now| {
            let checked = pool.check(from, now)?;
            Ok::<_, Fence>(CheckAnswer {
                missing: checked.missing,
                requested_now: checked.requested_now,
            })
        })
    }

    /// Returns true if the pool was running.
    pub(crate) fn stop_pool(
        &mut self,
        id: &WorkId,
        (from, status, message): (Caller, Final, &str),
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(PoolView, bool), Refusal> {
        let stopped = self.change_pool(id, moment, batch, |pool, now| {
            pool.stop(from, (status, message), now)
        })?;
        Ok((self.pool_view(id, moment)?, stopped))
    }

    /// Events for a reader. An owner that identifies itself is fenced. It reads a stopped pool
    /// until it has read every event and none can follow.
    pub(crate) fn read_pool_events(
        &mut self,
        id: &WorkId,
        (from, after): (Option<Caller>, u64),
        moment: &Moment,
    ) -> Result<EventList, Refusal> {
        let heard = self.pool_events(id, after)?;
        let Some(from) = from else {
            return Ok(heard);
        };
        let record = self.worker_pools.by_id.get_mut(id).ok_or(Refusal::Absent)?;
        let more = !heard.events.is_empty() || record.pool.counts().returning > 0;
        match record.pool.fence(from, now(moment)) {
            Ok(()) => Ok(heard),
            Err(Fence::Stopped) if more => Ok(heard),
            Err(fence) => Err(fence.into()),
        }
    }
}
