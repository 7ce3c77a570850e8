//! Failover of an active to the host of what stands by for it (11.4 to 11.6).
//!
//! A failover is known by the allocation that was lost. What was tried in it is not tried again
//! until it is over, which is when the active runs.

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use super::{Now, Patience, Processors};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The allocation the active had; absent where none was known.
    pub key: Option<AllocationId>,
    /// Hosts that were asked for.
    pub used: BTreeSet<NodeName>,
    /// Allocations of standbys that made place, or did not when they were told to.
    pub used_standbys: BTreeSet<AllocationId>,
    /// The host that is asked for; absent: any.
    pub asked: Option<NodeName>,
    /// The slot of the standby that has to end first.
    pub waits_for: Option<usize>,
    /// When it was told to.
    pub since_ms: u64,
}

impl Failover {
    pub fn of(key: Option<AllocationId>) -> Self {
        Self {
            key,
            used: BTreeSet::new(),
            used_standbys: BTreeSet::new(),
            asked: None,
            waits_for: None,
            since_ms: 0,
        }
    }
}

impl Processors {
    /// An ordinary failure: the host it was on comes first, and counts as tried.
    pub(super) fn record_first(
        &mut self,
        slot: usize,
        (allocation, _): (&AllocationId, &NodeName),
        host: &NodeName,
    ) {
        let mut failover = Failover::of(Some(allocation.clone()));
        failover.used.insert(host.clone());
        failover.asked = Some(host.clone());
        self.all[slot].failover = Some(failover);
        self.changed.insert(slot);
    }

    /// The active is lost. Told of the same loss again, it changes nothing.
    pub(super) fn fail_over(
        &mut self,
        slot: usize,
        what: Option<(&AllocationId, &NodeName)>,
        now: Now,
    ) {
        let key = what.map(|(allocation, _)| allocation.clone());
        let before = self.all[slot].failover.take();
        let mut failover = match before {
            Some(before) if before.key == key && key.is_some() => {
                self.all[slot].failover = Some(before);
                return;
            }
            // An active that was lost again before it ran is still in the same failover: what was
            // tried stays tried.
            Some(before) => Failover { key, ..before },
            None => Failover::of(key),
        };
        failover.used.extend(what.map(|(_, host)| host.clone()));
        self.all[slot].failover = Some(failover);
        self.choose(slot, now);
    }

    /// 11.4: the next host that was not tried in this failover. Of several standbys the one that is
    /// up for the longest has the most to take over; a host that was lost has nothing.
    pub(super) fn choose(&mut self, slot: usize, now: Now) {
        let mut failover = self.all[slot]
            .failover
            .take()
            .unwrap_or_else(|| Failover::of(None));
        (failover.asked, failover.waits_for) = (None, None);
        let standbys: Vec<usize> = self.terms.standbys_of(slot).collect();
        let untried =
            |host: &NodeName| !failover.used.contains(host) && !self.closed.contains(host);
        let up = standbys.iter().copied().filter_map(|standby| {
            let seat = self.all[standby].seat.as_ref()?;
            let tried = failover.used_standbys.contains(&seat.allocation);
            let since_ms = seat.up_since_ms.filter(|_| untried(&seat.host) && !tried)?;
            Some((since_ms, standby))
        });
        let warmest = up.min().map(|(_, standby)| standby);
        let last_known = || {
            let mut hosts = standbys.iter().filter_map(|it| {
                let it = &self.all[*it];
                it.last_host.clone().filter(|_| it.seat.is_none())
            });
            hosts.find(untried)
        };
        if let Some(standby) = warmest {
            let Some(seat) = self.all[standby].seat.clone() else {
                return;
            };
            self.look_for_breach(slot, &seat.host);
            let what = format!("fails over to {}, where a standby of it runs", seat.host);
            failover.used.insert(seat.host.clone());
            failover.used_standbys.insert(seat.allocation);
            failover.asked = Some(seat.host);
            (failover.waits_for, failover.since_ms) = (Some(standby), now.monotonic_ms);
            self.all[slot].failover = Some(failover);
            self.yield_place(standby, now);
            self.tell(slot, &what);
        } else if let Some(host) = last_known() {
            let what = format!("fails over to {host}, where a standby of it was last seen");
            failover.used.insert(host.clone());
            failover.asked = Some(host.clone());
            self.all[slot].failover = Some(failover);
            self.ask_for(slot, Some(host), now, 0);
            self.tell(slot, &what);
        } else {
            // 11.5: recorded too, or its end would begin a failover that has forgotten the others.
            self.all[slot].failover = Some(failover);
            self.ask_for(slot, None, now, 0);
            self.tell(slot, "fails over to any host");
        }
        self.changed.insert(slot);
    }

    pub(super) fn yield_place(&mut self, standby: usize, now: Now) {
        if let Some(it) = self.all.get_mut(standby) {
            it.yields = true;
        }
        if let Some(active) = self.terms.partners(standby).next()
            && let Some(failover) = &mut self.all[active].failover
        {
            failover.since_ms = now.monotonic_ms;
        }
    }

    /// The standby has ended: the active takes its host, and the standby goes anywhere else. Or it
    /// does not end (11.6), and is believed to run; or its host is lost: the next choice is tried.
    pub(super) fn go_on_over(&mut self, slot: usize, patience: Patience, now: Now) {
        let failover = self.all[slot].failover.as_ref();
        let Some((standby, since_ms, host)) =
            failover.and_then(|it| Some((it.waits_for?, it.since_ms, it.asked.clone())))
        else {
            return;
        };
        let patient = now.monotonic_ms.saturating_sub(since_ms) < patience.stop_ms;
        let gone = self.all[standby].alive == 0;
        // Something of the active stands again: a place given by an action, or its node is back.
        let needless = self.all[slot].seat.is_some();
        if !gone && patient && !needless {
            return;
        }
        self.all[standby].yields = false;
        if let Some(failover) = &mut self.all[slot].failover {
            failover.waits_for = None;
        }
        self.changed.insert(slot);
        if gone {
            self.ask_for(standby, None, now, 0);
        }
        let lost = host.as_ref().is_some_and(|host| self.closed.contains(host));
        if gone && lost && !needless {
            self.choose(slot, now);
        } else if gone || needless {
            self.ask_for(slot, host, now, 0);
        } else {
            self.tell(standby, "does not end; its active looks for another host");
            self.choose(slot, now);
        }
    }

    /// 11.4: two standbys of one active on one host must never be.
    fn look_for_breach(&mut self, slot: usize, host: &NodeName) {
        let on_it = |standby: &usize| {
            let seat = self.all[*standby].seat.as_ref();
            seat.is_some_and(|seat| seat.host == *host)
        };
        let there = self.terms.standbys_of(slot).filter(on_it).count();
        if there > 1 {
            let place = self.terms.place(slot);
            self.breach = Some(format!(
                "{there} standbys of processor {place} are on {host}, which must never be"
            ));
        }
    }
}
