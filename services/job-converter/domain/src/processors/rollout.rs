//! A service is changed while it runs: how many processors it has, and what they run.
//!
//! What runs as an older deployment says is *outdated*. It is taken off a few at a time, and asked
//! for again once nothing of it is alive: two processes of one processor would be one too many.
//! Nothing of this is remembered beside the deployment itself: what is outdated is seen on what
//! stands, so that a manager that starts anew goes on where the one before was.

use std::collections::{BTreeMap, BTreeSet};

use super::{Now, Over, Place, Processor, Processors, Terms};

impl Processor {
    /// Runs as an older deployment says, and was not taken off yet.
    fn is_outdated(&self) -> bool {
        // With two of it alive it is being moved: what comes next is as deployed now.
        let stands = self.seat.as_ref().is_some_and(|seat| seat.stale);
        stands && !self.renews && self.alive <= 1
    }

    /// Nobody misses it. `shaky`: it has failed in this deployment, and did not run long since.
    pub(super) fn is_up(&self, shaky: bool) -> bool {
        match &self.seat {
            Some(seat) => seat.running && !self.renews && (seat.stale || !shaky),
            None => self.over == Some(Over::Completed),
        }
    }
}

impl Processors {
    /// Goes on under other terms. Processors that were there already stay what they are; deployed
    /// `anew`, none of them has failed or completed yet. Returns the slots that were not there
    /// before.
    pub fn amend(&mut self, terms: Terms, anew: bool, now: Now) -> Vec<usize> {
        let before = std::mem::replace(&mut self.terms, terms);
        let known = std::mem::take(&mut self.all).into_iter().enumerate();
        let mut known: BTreeMap<Place, Processor> =
            known.map(|(slot, it)| (before.place(slot), it)).collect();
        let mut fresh = Vec::new();
        for slot in 0..self.terms.count() {
            let it = known.remove(&self.terms.place(slot)).unwrap_or_else(|| {
                fresh.push(slot);
                Processor::default()
            });
            self.all.push(it);
        }
        self.keep_failovers(&before, now);
        for slot in 0..self.all.len() {
            let it = &mut self.all[slot];
            let begins = anew || fresh.contains(&slot);
            if anew {
                (it.over, it.record, it.returns) = (None, None, false);
            }
            if begins && it.seat.is_none() && it.failover.is_none() {
                let host = self.last_seen(slot);
                self.ask_for(slot, host, now, 0);
            }
        }
        self.changed.extend(0..self.all.len());
        fresh
    }

    /// Failovers name their standbys by slot, and slots have moved. One whose standby is no more
    /// goes to its host all the same; without standbys there is none.
    fn keep_failovers(&mut self, before: &Terms, now: Now) {
        let keeps = self.terms.fails_over();
        let mut yielding = BTreeSet::new();
        for slot in 0..self.all.len() {
            let Some(mut failover) = self.all[slot].failover.take() else {
                continue;
            };
            let waited = failover.waits_for.take();
            failover.waits_for = waited.and_then(|standby| self.terms.slot(before.place(standby)));
            yielding.extend(failover.waits_for);
            let (waits, asked) = (failover.waits_for.is_some(), failover.asked.clone());
            self.all[slot].failover = Some(failover).filter(|_| keeps);
            if waited.is_some() && !(waits && keeps) {
                self.ask_for(slot, asked, now, 0);
            }
        }
        for (slot, it) in self.all.iter_mut().enumerate() {
            it.yields = keeps && yielding.contains(&slot);
        }
    }

    /// What there was of a processor was told to end, and nothing more is asked for until it has.
    pub fn renews(&mut self, slot: usize) {
        if let Some(it) = self.all.get_mut(slot) {
            it.renews |= it.alive > 0 && it.seat.is_none();
        }
    }

    /// Takes off what is outdated, so that never more than `limit` are missing for it. What does
    /// not run is missing already. Standbys go before actives, and never both of a pair at a time.
    pub fn roll(&mut self, limit: u64, shaky: &BTreeSet<usize>) {
        if self.outdated() == 0 {
            return;
        }
        let up = |(slot, it): &(usize, &Processor)| it.is_up(shaky.contains(slot));
        let missing = self.all.iter().enumerate().filter(|it| !up(it)).count();
        let mut room = limit.saturating_sub(missing as u64);
        for slot in (0..self.all.len()).rev() {
            let it = &self.all[slot];
            if !it.is_outdated() {
                continue;
            }
            if it.is_up(false) {
                let pair = self.terms.partners(slot).any(|it| self.all[it].renews);
                if room == 0 || pair {
                    continue;
                }
                room -= 1;
            }
            self.all[slot].renews = true;
        }
    }

    /// What was taken off is gone: it is asked for again, where it was where that matters.
    pub(super) fn go_on_anew(&mut self, slot: usize, now: Now) {
        let it = &mut self.all[slot];
        if it.renews && it.alive == 0 {
            it.renews = false;
            let host = self.last_seen(slot);
            self.ask_for(slot, host, now, 0);
        }
    }

    /// Processors that stand as an older deployment says.
    pub fn outdated(&self) -> usize {
        let stale = |it: &&Processor| it.seat.as_ref().is_some_and(|seat| seat.stale);
        self.all.iter().filter(stale).count()
    }
}
