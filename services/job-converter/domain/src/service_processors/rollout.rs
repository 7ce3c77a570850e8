//! Changes of a running service: the number of processors, and what they run.
//!
//! Processes of an older deployment are *outdated*. They are stopped a few at a time. A processor
//! requests a new process once none of its processes is alive, so that it never has two. Each
//! process names its deployment, so outdated processes are also found after a restart.

use std::collections::{BTreeMap, BTreeSet};

use super::{Now, Processor, ProcessorId, ProcessorOutcome, ProcessorSettings, Processors};

impl Processor {
    /// Returns true if the processor runs an older deployment and was not stopped yet.
    fn is_outdated(&self) -> bool {
        // With two live allocations the processor is being moved. The new allocation already runs
        // the current deployment.
        let is_stale = self
            .occupant
            .as_ref()
            .is_some_and(|occupant| occupant.stale);
        is_stale && !self.is_restarting && self.alive <= 1
    }

    /// Returns true if the processor runs. An `unstable` processor failed in this deployment and
    /// has run only briefly since. It does not count as running.
    pub(super) fn is_up(&self, unstable: bool) -> bool {
        match &self.occupant {
            Some(occupant) => {
                occupant.running && !self.is_restarting && (occupant.stale || !unstable)
            }
            None => self.outcome == Some(ProcessorOutcome::Completed),
        }
    }
}

impl Processors {
    /// Applies new settings. Existing processors keep their state. With `redeployed`, failures and
    /// ends are cleared. Returns the new slots.
    pub fn amend(&mut self, settings: ProcessorSettings, redeployed: bool, now: Now) -> Vec<usize> {
        let before = std::mem::replace(&mut self.settings, settings);
        let known = std::mem::take(&mut self.by_slot).into_iter().enumerate();
        let mut known: BTreeMap<ProcessorId, Processor> = known
            .map(|(slot, processor)| (before.id_at(slot), processor))
            .collect();
        let mut new_slots = Vec::new();
        for slot in 0..self.settings.count() {
            let processor = known.remove(&self.settings.id_at(slot)).unwrap_or_else(|| {
                new_slots.push(slot);
                Processor::default()
            });
            self.by_slot.push(processor);
        }
        self.adapt_failovers(&before, now);
        for slot in 0..self.by_slot.len() {
            let processor = &mut self.by_slot[slot];
            let is_new = redeployed || new_slots.contains(&slot);
            if redeployed {
                (
                    processor.outcome,
                    processor.failures,
                    processor.is_returning,
                ) = (None, None, false);
            }
            if is_new && processor.occupant.is_none() && processor.failover.is_none() {
                let host = self.preferred_host(slot);
                self.open_request(slot, host, now, 0);
            }
        }
        self.changed.extend(0..self.by_slot.len());
        new_slots
    }

    /// Adapts failovers to the new slots, because failovers refer to standbys by slot. If the
    /// standby was removed, the active requests its node at once. Without standbys, failovers end.
    fn adapt_failovers(&mut self, before: &ProcessorSettings, now: Now) {
        let fails_over = self.settings.fails_over();
        let mut yielding = BTreeSet::new();
        for slot in 0..self.by_slot.len() {
            let Some(mut failover) = self.by_slot[slot].failover.take() else {
                continue;
            };
            let waited_for = failover.waits_for.take();
            failover.waits_for =
                waited_for.and_then(|standby| self.settings.slot(before.id_at(standby)));
            yielding.extend(failover.waits_for);
            let (waits, requested) = (failover.waits_for.is_some(), failover.requested.clone());
            self.by_slot[slot].failover = Some(failover).filter(|_| fails_over);
            if waited_for.is_some() && !(waits && fails_over) {
                self.open_request(slot, requested, now, 0);
            }
        }
        for (slot, processor) in self.by_slot.iter_mut().enumerate() {
            processor.is_yielding = fails_over && yielding.contains(&slot);
        }
    }

    /// Records that the processes of a processor were stopped. The processor requests nothing until
    /// these processes have ended.
    pub fn mark_stopped(&mut self, slot: usize) {
        if let Some(processor) = self.by_slot.get_mut(slot) {
            processor.is_restarting |= processor.alive > 0 && processor.occupant.is_none();
        }
    }

    /// Stops outdated processes so that at most `limit` are missing. Processes that do not run
    /// count as missing. Standbys are stopped before actives. An active and its standby are never
    /// stopped at the same time.
    pub fn roll_out(&mut self, limit: u64, unstable: &BTreeSet<usize>) {
        if self.count_outdated() == 0 {
            return;
        }
        let is_up =
            |(slot, processor): &(usize, &Processor)| processor.is_up(unstable.contains(slot));
        let missing = self
            .by_slot
            .iter()
            .enumerate()
            .filter(|numbered| !is_up(numbered))
            .count();
        let mut headroom = limit.saturating_sub(missing as u64);
        for slot in (0..self.by_slot.len()).rev() {
            let processor = &self.by_slot[slot];
            if !processor.is_outdated() {
                continue;
            }
            if processor.is_up(false) {
                let is_partner_stopped = self
                    .settings
                    .partners(slot)
                    .any(|partner| self.by_slot[partner].is_restarting);
                if headroom == 0 || is_partner_stopped {
                    continue;
                }
                headroom -= 1;
            }
            self.by_slot[slot].is_restarting = true;
        }
    }

    /// Requests a new process after the stopped ones have ended. With host affinity, it requests
    /// the last node.
    pub(super) fn restart_stopped(&mut self, slot: usize, now: Now) {
        let processor = &mut self.by_slot[slot];
        if processor.is_restarting && processor.alive == 0 {
            processor.is_restarting = false;
            let host = self.preferred_host(slot);
            self.open_request(slot, host, now, 0);
        }
    }

    /// Returns the number of processors with a process of an older deployment.
    pub fn count_outdated(&self) -> usize {
        let stale = |processor: &&Processor| {
            processor
                .occupant
                .as_ref()
                .is_some_and(|occupant| occupant.stale)
        };
        self.by_slot.iter().filter(stale).count()
    }
}
