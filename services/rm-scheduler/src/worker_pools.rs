//! Worker pools in the working set: for each a pure [`Pool`], its description, its events, and the
//! works it requests from the planner.
//!
//! A pool changes by commands of its owner ([`commands`]), by changes of its allocations and by
//! time ([`events_and_time`]). After each change, the works it wants are added to the snapshot
//! ([`demand`]), and the changed rows go into the same batch.

pub mod commands;
mod demand;
mod events_and_time;
mod refusal;
mod view;

use std::collections::BTreeMap;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::AllocationEntry;
use hayward_rm_scheduler_api::pools::{EventKind, PoolEvent};
use hayward_rm_scheduler_worker_pools::{
    EventKind as OwnerEventKind, Now, OwnerEvent, Pool, Rules,
};
use hayward_service::runtime::clock::fresh_uuid;
use hayward_vocabulary::{Timestamp, WorkId};
use tokio::sync::watch;

use crate::config::Settings;
use crate::model::{EVENTS_KEPT, PoolDescription, PoolRecord};
use crate::store::Rows;
use crate::working_set::Ledger;

pub use refusal::Refusal;

/// A command to the pools with its reply.
pub type Act = dyn FnOnce(&mut Ledger, &Moment, &mut Batch<Rows>) + Send;

/// Prefix of the ids of pools and of their works.
const PREFIX: &str = "wp_";
#[derive(Debug, Default)]
pub struct WorkerPools {
    by_id: BTreeMap<WorkId, PoolRecord>,
    /// Changed allocations of pools, in order, for the next round.
    changed: Vec<AllocationEntry>,
    /// True in a new term until owners are asked to connect again.
    resume_pending: bool,
}

impl WorkerPools {
    pub fn loaded(by_id: BTreeMap<WorkId, PoolRecord>) -> Self {
        Self {
            by_id,
            changed: Vec::new(),
            resume_pending: true,
        }
    }

    /// Records a changed allocation of a pool.
    pub fn record_change(&mut self, entry: &AllocationEntry) {
        if owns(&entry.work) {
            self.changed.push(entry.clone());
        }
    }

    /// True if a pool requests this work now.
    pub fn wants(&self, work: &WorkId) -> bool {
        let found =
            number_of(work).and_then(|(pool, number)| Some((self.by_id.get(&pool)?, number)));
        found.is_some_and(|(record, number)| record.put.contains(&number))
    }
}

/// True if the work is a worker of a pool.
pub fn owns(work: &WorkId) -> bool {
    work.as_str().starts_with(PREFIX)
}

pub fn fresh_id() -> Option<WorkId> {
    WorkId::new(format!("{PREFIX}{}", fresh_uuid().simple())).ok()
}

/// The pool of a work, and the number of the work in it.
fn number_of(work: &WorkId) -> Option<(WorkId, u64)> {
    let (pool, number) = work.as_str().split_once('.')?;
    let pool = owns(work).then(|| WorkId::new(pool).ok())??;
    Some((pool, number.parse().ok()?))
}

fn work_of(pool: &WorkId, number: u64) -> Option<WorkId> {
    WorkId::new(format!("{pool}.{number}")).ok()
}

fn now(moment: &Moment) -> Now {
    Now {
        monotonic_ms: moment.monotonic_ms,
        unix_ms: moment.now.unix_ms(),
    }
}

pub fn rules(settings: &Settings) -> Rules {
    Rules {
        register_deadline_ms: settings.pool_register_deadline_ms,
        reregister_grace_ms: settings.pool_reregister_grace_ms,
        start_failures_per_min: settings.pool_start_failures_per_min,
        cooldown_ms: settings.pool_cooldown_ms,
        owner_lease_ms: settings.pool_owner_lease_ms,
        failure_window_ms: settings.pool_failure_window_ms,
        recovery_timeout_ms: settings.pool_recovery_timeout_ms,
    }
}

/// Wakes long polls when an event of any pool is committed. Each poll reads its own events.
pub struct PoolEventSignal(watch::Sender<()>);

impl Default for PoolEventSignal {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl PoolEventSignal {
    pub fn listen(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    fn ring(&self) {
        self.0.send_replace(());
    }
}

impl Ledger {
    /// Changes a pool, or leaves it as it is when `act` refuses.
    fn change_pool<T, E>(
        &mut self,
        id: &WorkId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
        act: impl FnOnce(&mut Pool, Now) -> Result<T, E>,
    ) -> Result<T, Refusal>
    where
        Refusal: From<E>,
    {
        if !batch.is_dry_run() {
            // Else an owner that calls before the first round would have to connect again after it.
            self.resume_pools(moment, batch);
        }
        let record = self.worker_pools.by_id.get_mut(id).ok_or(Refusal::Absent)?;
        let before = record.pool.clone();
        if batch.is_dry_run() {
            return Ok(act(&mut before.clone(), now(moment))?);
        }
        let done = act(&mut record.pool, now(moment))?;
        if record.pool.stopped.is_some() {
            record.about.stopped_at.get_or_insert(moment.now);
        }
        record.next_tick_ms = record.pool.next_tick_ms();
        for news in record.pool.take_events() {
            let event = event(news, moment.now);
            batch.rows.pools.event(id, &event);
            record.events.push_back(event);
            let context = self.context.clone();
            batch.once_committed(move |_| context.pools.ring());
        }
        let over = record.events.len().saturating_sub(EVENTS_KEPT);
        record.events.drain(..over);
        batch.rows.pools.note(&record.about, &before, &record.pool);
        self.update_pool_demand(id, batch);
        Ok(done)
    }
}

fn event(news: OwnerEvent, at: Timestamp) -> PoolEvent {
    PoolEvent {
        seq: news.seq,
        kind: match news.kind {
            OwnerEventKind::ResourceRemoved => EventKind::ResourceRemoved,
            OwnerEventKind::ReconnectRequested => EventKind::ReconnectRequested,
            OwnerEventKind::PoolFailed => EventKind::PoolFailed,
            OwnerEventKind::Info => EventKind::Info,
        },
        worker_id: news.worker,
        text: news.text,
        at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_of_pools_have_their_own_prefix_and_name_their_pool() {
        let pool = fresh_id().unwrap();
        let work = work_of(&pool, 12).unwrap();
        assert_eq!(number_of(&work), Some((pool.clone(), 12)));
        assert_eq!(work.whole(), pool);
        assert_eq!(number_of(&pool), None);
        for other in ["job_1", "svc_1.2", "rsv_1"] {
            let other: WorkId = other.parse().unwrap();
            assert!(!owns(&other) && number_of(&other).is_none());
        }
    }
}
