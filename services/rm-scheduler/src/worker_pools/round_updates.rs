//! Updates worker pools before and after each round: changed allocations, blocked nodes, and time.
//! The update is in the transaction of the changed allocations, so both are always consistent.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use hayward_publication::{Batch, Moment, Wake};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_rm_scheduler_worker_pools::{Ending, Mode, PlatformEvent, Pool, State};
use hayward_vocabulary::{AllocationId, Exit, ExitCause, NodeName, WorkId};

use crate::model::PoolRecord;
use crate::store::Rows;
use crate::working_set::Ledger;
use crate::working_set::worker_pools::{is_pool_work, pool_and_number};

impl Ledger {
    /// Applies changed allocations, blocked nodes and time to all worker pools.
    pub(crate) fn update_worker_pools(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        self.resume_pools(moment, batch);
        let mut by_pool: BTreeMap<WorkId, Vec<AllocationEntry>> = BTreeMap::new();
        for entry in std::mem::take(&mut self.worker_pools.changed) {
            by_pool.entry(entry.work.parent()).or_default().push(entry);
        }
        for (id, entries) in by_pool {
            self.update_pool(&id, moment, batch, |pool, now| {
                let events = allocation_events(pool, &entries);
                pool.apply_events(events, now);
            });
        }
        self.report_blocked_nodes(moment, batch);
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= moment.monotonic_ms);
        let due = self
            .worker_pools
            .by_id
            .iter()
            .filter(|(_, record)| is_due(record.next_tick_ms));
        let due: Vec<WorkId> = due.map(|(id, _)| id.clone()).collect();
        for id in due {
            self.update_pool(&id, moment, batch, Pool::tick);
        }
    }

    /// Reports to pools which nodes of their workers are blocked or avoided.
    fn report_blocked_nodes(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let blocked_nodes = |record: &PoolRecord| -> BTreeSet<NodeName> {
            let description = &record.description;
            let avoided = self
                .followed
                .avoided_nodes(&description.id, &description.user);
            let workers = record.pool.workers.values();
            let nodes: BTreeSet<&NodeName> = workers.filter_map(|it| it.node.as_ref()).collect();
            let is_blocked = |node: &&NodeName| {
                let known = self.snapshot.nodes.get(*node);
                known.is_some_and(|node| node.block.is_some()) || avoided.contains(*node)
            };
            nodes.into_iter().filter(is_blocked).cloned().collect()
        };
        let is_managed = |record: &&PoolRecord| {
            record.pool.stopped.is_none() && record.pool.mode == Mode::Managed
        };
        let changed: Vec<(WorkId, BTreeSet<NodeName>)> = (self.worker_pools.by_id.values())
            .filter(is_managed)
            .map(|record| (record, blocked_nodes(record)))
            .filter(|(record, nodes)| record.pool.blocked_nodes != *nodes)
            .map(|(record, nodes)| (record.description.id.clone(), nodes))
            .collect();
        for (id, nodes) in changed {
            self.update_pool(&id, moment, batch, |pool, now| {
                pool.set_blocked_nodes(nodes, now);
            });
        }
    }

    /// Returns the earlier of `wake` and the next time at which a pool must be updated. If a round
    /// is needed now, for example for requested workers, the wake is soon.
    pub(crate) fn wake_for_pools(&self, wake: Wake, moment: &Moment) -> Wake {
        let ticks = self
            .worker_pools
            .by_id
            .values()
            .filter_map(|record| record.next_tick_ms);
        let tick = ticks
            .min()
            .map(|at| at.saturating_sub(moment.monotonic_ms).max(1));
        let soon = (self.timing.needs_round() && self.followed.all_answered())
            .then_some(self.context.settings.round_min_ms);
        let Some(ms) = tick.into_iter().chain(soon).min() else {
            return wake;
        };
        let pool_wake = Duration::from_millis(ms);
        Wake::After(match wake {
            Wake::After(round_wake) => round_wake.min(pool_wake),
            Wake::OnCommand => pool_wake,
        })
    }

    /// Compares the pools with the allocations in a new term, and asks their owners to connect
    /// again. Runs once in a term, before every other change of a pool.
    pub(super) fn resume_pools(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        if !std::mem::take(&mut self.worker_pools.resume_pending) {
            return;
        }
        let mut held_by_pool: BTreeMap<WorkId, BTreeSet<AllocationId>> = BTreeMap::new();
        let entries = self.allocations.values().map(|record| &record.entry);
        for entry in entries.filter(|entry| is_pool_work(&entry.work)) {
            self.worker_pools.changed.push(entry.clone());
            if entry.holds() {
                let of_pool = held_by_pool.entry(entry.work.parent()).or_default();
                of_pool.insert(entry.id.clone());
            }
        }
        let pools: Vec<WorkId> = self.worker_pools.by_id.keys().cloned().collect();
        for id in pools {
            let held = held_by_pool.remove(&id).unwrap_or_default();
            self.update_pool(&id, moment, batch, |pool, now| pool.recover(&held, now));
        }
    }

    fn update_pool(
        &mut self,
        id: &WorkId,
        moment: &Moment,
        batch: &mut Batch<Rows>,
        change: impl FnOnce(&mut Pool, hayward_rm_scheduler_worker_pools::Now),
    ) {
        let result = self.change_pool(id, moment, batch, |pool, now| {
            change(pool, now);
            Ok::<_, Infallible>(())
        });
        // The only possible refusal is that the pool was removed, and such a pool has no workers.
        drop(result);
    }
}

/// Converts changed allocations of a pool to events of its state machine.
fn allocation_events(pool: &Pool, entries: &[AllocationEntry]) -> Vec<PlatformEvent> {
    let own_workers = pool
        .workers
        .iter()
        .filter(|(_, it)| it.state != State::Foreign);
    let mut known_ids: BTreeSet<&AllocationId> = own_workers.map(|(id, _)| id).collect();
    let mut events = Vec::new();
    for entry in entries {
        let id = &entry.id;
        if !known_ids.contains(id) {
            let Some((_, number)) = pool_and_number(&entry.work).filter(|_| entry.holds()) else {
                continue;
            };
            known_ids.insert(id);
            let (id, node) = (id.clone(), entry.node.clone());
            events.push(PlatformEvent::Granted { id, number, node });
        }
        if !entry.holds() {
            known_ids.remove(id);
            events.push(ended_event(entry));
        } else if let Some(vacate) = &entry.vacate {
            let (id, text) = (id.clone(), vacate.detail.clone());
            events.push(PlatformEvent::Leaving { id, text });
        }
    }
    events
}

fn ended_event(entry: &AllocationEntry) -> PlatformEvent {
    let exit = entry.exit.as_ref();
    let vacated = entry.vacate.as_ref().map(|vacate| vacate.reason);
    PlatformEvent::Ended {
        id: entry.id.clone(),
        ending: classify_end(vacated, exit, entry.running_since.is_some()),
        text: exit.map_or_else(|| "it ended".to_owned(), exit_text),
    }
}

/// Classifies the end of a worker. An ordered end is intended, unless the order was given because
/// the node was lost.
fn classify_end(vacated: Option<VacateReason>, exit: Option<&Exit>, ran: bool) -> Ending {
    let cause = exit.map(|exit| exit.cause);
    // A cause code names a fault of the node that prevented the start (W15).
    let has_cause_code = exit.is_some_and(|exit| exit.cause_code.is_some());
    match (vacated, cause) {
        (Some(reason), _) if reason != VacateReason::NodeLost => Ending::Intended,
        (_, Some(ExitCause::Intended)) => Ending::Intended,
        (_, Some(ExitCause::LaunchFailed | ExitCause::Node)) if has_cause_code && !ran => {
            Ending::Refused
        }
        _ => Ending::Died,
    }
}

fn exit_text(exit: &Exit) -> String {
    let text = match exit.cause {
        ExitCause::Success => "it ended by itself",
        ExitCause::UserError => "it ended with an error",
        ExitCause::UserLimit => "it went over a limit",
        ExitCause::LaunchFailed => "it could not be started",
        ExitCause::Node if exit.cause_code.is_some() => "its node could not run it",
        ExitCause::Node => "it was lost with its node",
        ExitCause::Intended => "it was ordered to end",
        ExitCause::LaunchUnknown => "it may never have been started",
        ExitCause::Unknown => "it ended",
    };
    let code = exit.code.map(|code| format!(", status {code}"));
    let signal = exit.signal.map(|signal| format!(", signal {signal}"));
    let message = exit.message.as_ref().map(|text| format!(": {text}"));
    let parts = [code, signal, message].map(Option::unwrap_or_default);
    format!("{text}{}", parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASONS: [VacateReason; 7] = [
        VacateReason::Preempted,
        VacateReason::Blocked,
        VacateReason::NodeLost,
        VacateReason::NodeOffline,
        VacateReason::Drained,
        VacateReason::WorkGone,
        VacateReason::Unknown,
    ];

    #[test]
    fn an_ordered_end_is_not_a_failure_of_the_pool() {
        use Ending::{Died, Intended, Refused};
        use ExitCause::{
            LaunchFailed, LaunchUnknown, Node, Success, Unknown, UserError, UserLimit,
        };
        let exit = |cause, code: Option<&str>| Exit {
            cause_code: code.map(str::to_owned),
            ..Exit::of(cause, "")
        };
        let table = [
            // Columns: without a cause code; with one, before the worker ran; with one, after it
            // ran.
            (Success, [Died, Died, Died]),
            (UserError, [Died, Died, Died]),
            (UserLimit, [Died, Died, Died]),
            (LaunchFailed, [Died, Refused, Died]),
            (Node, [Died, Refused, Died]),
            (ExitCause::Intended, [Intended, Intended, Intended]),
            (LaunchUnknown, [Died, Died, Died]),
            (Unknown, [Died, Died, Died]),
        ];
        for (cause, [without, before_run, after_run]) in table {
            let with_code = exit(cause, Some("disk_full"));
            let without_code = exit(cause, None);
            assert_eq!(
                classify_end(None, Some(&without_code), true),
                without,
                "{cause:?}"
            );
            assert_eq!(
                classify_end(None, Some(&with_code), false),
                before_run,
                "{cause:?}"
            );
            assert_eq!(
                classify_end(None, Some(&with_code), true),
                after_run,
                "{cause:?}"
            );
            for reason in REASONS {
                let ending = classify_end(Some(reason), Some(&without_code), true);
                let is_ordered = reason != VacateReason::NodeLost;
                assert_eq!(
                    ending,
                    if is_ordered { Intended } else { without },
                    "{reason:?} {cause:?}"
                );
            }
        }
        assert_eq!(classify_end(None, None, true), Died);
    }
}
