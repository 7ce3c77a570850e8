//! Changes of a running service: the number of processors, and what they run.
//!
//! Processes of an older deployment are *outdated*. They are stopped a few at a time. A new process
//! is requested once none of the processor's processes is alive, so that it never has two. Outdated
//! processes are recognized by their deployment, so a restart needs no other record.

use std::collections::{BTreeMap, BTreeSet};

use super::{Now, Processor, ProcessorEnd, ProcessorId, Processors, Terms};

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

    /// Returns true if the processor runs. `shaky` means that it failed in this deployment and has
    /// not run long since.
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
    /// Applies new terms. Existing processors keep their state. With `redeployed`, failures and
    /// ends are cleared. Returns the new slots.
    pub fn amend(&mut self, terms: Terms, redeployed: bool, now: Now) -> Vec<usize> {
        let before = std::mem::replace(&mut self.terms, terms);
        let known = std::mem::take(&mut self.all).into_iter().enumerate();
        let mut known: BTreeMap<ProcessorId, Processor> =
            known.map(|(slot, it)| (before.id_at(slot), it)).collect();
        let mut new_slots = Vec::new();
        for slot in 0..self.terms.count() {
            let it = known.remove(&self.terms.id_at(slot)).unwrap_or_else(|| {
                new_slots.push(slot);
                Processor::default()
            });
            self.all.push(it);
        }
        self.adapt_failovers(&before, now);
        for slot in 0..self.all.len() {
            let it = &mut self.all[slot];
            let is_new = redeployed || new_slots.contains(&slot);
            if redeployed {
                (it.over, it.record, it.is_returning) = (None, None, false);
            }
            if is_new && it.occupant.is_none() && it.failover.is_none() {
                let host = self.preferred_host(slot);
                self.open_request(slot, host, now, 0);
            }
        }
        self.changed.extend(0..self.all.len());
        new_slots
    }

    /// Adapts failovers to the new slots, because failovers refer to standbys by slot. A failover
    /// whose standby was removed uses its node. Without standbys, failovers end.
    fn adapt_failovers(&mut self, before: &Terms, now: Now) {
        let fails_over = self.terms.fails_over();
        let mut yielding = BTreeSet::new();
        for slot in 0..self.all.len() {
            let Some(mut failover) = self.all[slot].failover.take() else {
                continue;
            };
            let waited = failover.waits_for.take();
            failover.waits_for = waited.and_then(|standby| self.terms.slot(before.id_at(standby)));
            yielding.extend(failover.waits_for);
            let (waits, requested) = (failover.waits_for.is_some(), failover.requested.clone());
            self.all[slot].failover = Some(failover).filter(|_| fails_over);
            if waited.is_some() && !(waits && fails_over) {
                self.open_request(slot, requested, now, 0);
            }
        }
        for (slot, it) in self.all.iter_mut().enumerate() {
            it.is_yielding = fails_over && yielding.contains(&slot);
        }
    }

    /// Records that the processes of a processor were stopped. It requests nothing until they have
    /// ended.
    pub fn mark_stopped(&mut self, slot: usize) {
        if let Some(it) = self.all.get_mut(slot) {
            it.is_restarting |= it.alive > 0 && it.occupant.is_none();
        }
    }

    /// Stops outdated processes so that at most `limit` are missing. Processes that do not run
    /// count as missing. Standbys go before actives, and never both of a pair at a time.
    pub fn roll_out(&mut self, limit: u64, unstable: &BTreeSet<usize>) {
        if self.count_outdated() == 0 {
            return;
        }
        let is_up = |(slot, it): &(usize, &Processor)| it.is_up(unstable.contains(slot));
        let missing = self.all.iter().enumerate().filter(|it| !is_up(it)).count();
        let mut headroom = limit.saturating_sub(missing as u64);
        for slot in (0..self.all.len()).rev() {
            let it = &self.all[slot];
            if !it.is_outdated() {
                continue;
            }
            if it.is_up(false) {
                let partner_stopped = self
                    .terms
                    .partners(slot)
                    .any(|it| self.all[it].is_restarting);
                if headroom == 0 || partner_stopped {
                    continue;
                }
                headroom -= 1;
            }
            self.all[slot].is_restarting = true;
        }
    }

    /// Requests a new process after the stopped ones have ended, on the same node where that
    /// matters.
    pub(super) fn restart_stopped(&mut self, slot: usize, now: Now) {
        let it = &mut self.all[slot];
        if it.is_restarting && it.alive == 0 {
            it.is_restarting = false;
            let host = self.preferred_host(slot);
            self.open_request(slot, host, now, 0);
        }
    }

    /// Returns the number of processors with a process of an older deployment.
    pub fn count_outdated(&self) -> usize {
        let stale = |it: &&Processor| it.occupant.as_ref().is_some_and(|occupant| occupant.stale);
        self.all.iter().filter(stale).count()
    }
}
