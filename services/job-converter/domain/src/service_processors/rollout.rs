//! Changes of a running service: the number of processors, and what they run.
//!
//! Processes of an older deployment are *outdated*. They are stopped a few at a time. A processor
//! requests a new process once none of its processes is alive, so that it never has two. Each
//! process names its deployment, so outdated processes are also found after a restart.

use std::collections::{BTreeMap, BTreeSet};

use super::{Now, Processor, ProcessorEnd, ProcessorId, ProcessorSettings, Processors};

impl Processor {
    /// Returns true if the processor runs an older deployment and was not stopped yet.
    fn is_outdated(&self) -> bool {
        // Two live allocations mean a move. The next one gets the current deployment.
        let has_stale = self
            .occupant
            .as_ref()
            .is_some_and(|occupant| occupant.stale);
        has_stale && !self.is_restarting && self.alive <= 1
    }

    /// Returns true if the processor runs. An `unstable` processor failed in this deployment and
    /// has run only briefly since. It does not count as running.
    pub(super) fn is_up(&self, unstable: bool) -> bool {
        match &self.occupant {
            Some(occupant) => {
                occupant.running && !self.is_restarting && (occupant.stale || !unstable)
            }
            None => self.over == Some(ProcessorEnd::Completed),
        }
    }
}

impl Processors {
    /// Applies new settings. Existing processors keep their state. With `redeployed`, failures and
    /// ends are cleared. Returns the new slots.
    pub fn amend(&mut self, settings: ProcessorSettings, redeployed: bool, now: Now) -> Vec<usize> {
        let before = std::mem::replace(&mut self.settings, settings);
        let known = std::mem::take(&mut self.by_slot).into_iter().enumerate();
        let mut known: BTreeMap<ProcessorId, Processor> =
            known.map(|(slot, it)| (before.id_at(slot), it)).collect();
        let mut new_slots = Vec::new();
        for slot in 0..self.settings.count() {
            let it = known.remove(&self.settings.id_at(slot)).unwrap_or_else(|| {
                new_slots.push(slot);
                Processor::default()
            });
            self.by_slot.push(it);
        }
        self.adapt_failovers(&before, now);
        for slot in 0..self.by_slot.len() {
            let it = &mut self.by_slot[slot];
            let is_new = redeployed || new_slots.contains(&slot);
            if redeployed {
                (it.over, it.record, it.is_returning) = (None, None, false);
            }
            if is_new && it.occupant.is_none() && it.failover.is_none() {
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
            let waited = failover.waits_for.take();
            failover.waits_for =
                waited.and_then(|standby| self.settings.slot(before.id_at(standby)));
            yielding.extend(failover.waits_for);
            let (waits, requested) = (failover.waits_for.is_some(), failover.requested.clone());
            self.by_slot[slot].failover = Some(failover).filter(|_| fails_over);
            if waited.is_some() && !(waits && fails_over) {
                self.open_request(slot, requested, now, 0);
            }
        }
        for (slot, it) in self.by_slot.iter_mut().enumerate() {
            it.is_yielding = fails_over && yielding.contains(&slot);
        }
    }

    /// Records that the processes of a processor were stopped. The processor requests nothing until
    /// these processes have ended.
    pub fn mark_stopped(&mut self, slot: usize) {
        if let Some(it) = self.by_slot.get_mut(slot) {
            it.is_restarting |= it.alive > 0 && it.occupant.is_none();
        }
    }

    /// Stops outdated processes so that at most `limit` are missing. Processes that do not run
    /// count as missing. Standbys are stopped before actives. An active and its standby are never
    /// stopped at the same time.
    pub fn roll_out(&mut self, limit: u64, unstable: &BTreeSet<usize>) {
        if self.count_outdated() == 0 {
            return;
        }
        let is_up = |(slot, it): &(usize, &Processor)| it.is_up(unstable.contains(slot));
        let missing = self
            .by_slot
            .iter()
            .enumerate()
            .filter(|it| !is_up(it))
            .count();
        let mut headroom = limit.saturating_sub(missing as u64);
        for slot in (0..self.by_slot.len()).rev() {
            let it = &self.by_slot[slot];
            if !it.is_outdated() {
                continue;
            }
            if it.is_up(false) {
                let partner_stopped = self
                    .settings
                    .partners(slot)
                    .any(|it| self.by_slot[it].is_restarting);
                if headroom == 0 || partner_stopped {
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
        let it = &mut self.by_slot[slot];
        if it.is_restarting && it.alive == 0 {
            it.is_restarting = false;
            let host = self.preferred_host(slot);
            self.open_request(slot, host, now, 0);
        }
    }

    /// Returns the number of processors with a process of an older deployment.
    pub fn count_outdated(&self) -> usize {
        let stale = |it: &&Processor| it.occupant.as_ref().is_some_and(|occupant| occupant.stale);
        self.by_slot.iter().filter(stale).count()
    }
}
