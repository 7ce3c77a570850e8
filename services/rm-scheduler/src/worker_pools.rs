//! Changes of worker pools. A worker pool has a state machine ([`Pool`], in a crate of its own), a
//! description, and events for its owner. It requests works from the planner.
//!
//! Commands ([`commands`]), changes of allocations, and time ([`round_updates`]) change a pool.
//! After each change, the wanted works of the pool are added to the snapshot ([`demand`]). The
//! changed rows are written with the same batch.

mod commands;
mod demand;
mod round_updates;
mod view;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::worker_pools::{EventKind, PoolEvent};
use hayward_rm_scheduler_worker_pools::{EventKind as OwnerEventKind, Now, OwnerEvent, Pool};
use hayward_vocabulary::{Timestamp, WorkId};

use crate::error::PoolRefusal;
use crate::model::MAX_EVENTS;
use crate::store::Rows;
use crate::working_set::Ledger;

fn now(moment: &Moment) -> Now {
    Now {
        monotonic_ms: moment.monotonic_ms,
        unix_ms: moment.now.unix_ms(),
    }
}

impl Ledger {
    /// Changes a pool by `act`, or leaves the pool as it is if `act` refuses.
    fn change_pool<T, E>(
        &mut self,
        id: &WorkId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
        act: impl FnOnce(&mut Pool, Now) -> Result<T, E>,
    ) -> Result<T, PoolRefusal>
    where
        PoolRefusal: From<E>,
    {
        if !batch.is_dry_run() {
            // Otherwise an owner that connects before the first round would be asked to connect
            // again in that round.
            self.resume_pools(moment, batch);
        }
        let record = self
            .worker_pools
            .by_id
            .get_mut(id)
            .ok_or(PoolRefusal::NotFound)?;
        let before = record.pool.clone();
        if batch.is_dry_run() {
            return Ok(act(&mut before.clone(), now(moment))?);
        }
        let result = act(&mut record.pool, now(moment))?;
        if record.pool.stopped.is_some() {
            record.description.stopped_at.get_or_insert(moment.now);
        }
        record.next_tick_ms = record.pool.next_tick_ms();
        for owner_event in record.pool.take_events() {
            let event = to_pool_event(owner_event, moment.now);
            batch.rows.pools.insert_event(id, &event);
            record.events.push_back(event);
            let context = self.context.clone();
            batch.once_committed(move |_| context.pool_events.notify());
        }
        let excess = record.events.len().saturating_sub(MAX_EVENTS);
        record.events.drain(..excess);
        batch
            .rows
            .pools
            .insert_changes(&record.description, &before, &record.pool);
        self.update_pool_demand(id, batch);
        Ok(result)
    }
}

fn to_pool_event(event: OwnerEvent, at: Timestamp) -> PoolEvent {
    PoolEvent {
        seq: event.seq,
        kind: match event.kind {
            OwnerEventKind::ResourceRemoved => EventKind::ResourceRemoved,
            OwnerEventKind::ReconnectRequested => EventKind::ReconnectRequested,
            OwnerEventKind::PoolFailed => EventKind::PoolFailed,
            OwnerEventKind::Info => EventKind::Info,
        },
        worker_id: event.worker,
        text: event.text,
        at,
    }
}
