//! Failover of an active to the node of one of its standbys.
//!
//! The allocation that the active lost identifies the failover. The failover ends when the active
//! runs. Until then, no node is tried twice.

use std::collections::BTreeSet;

use hayward_vocabulary::{AllocationId, NodeName};

use super::{Now, Placement, Processors, Timeouts};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// Allocation that the active lost. `None` if it is unknown.
    pub lost_allocation: Option<AllocationId>,
    /// Nodes that this failover has requested.
    pub tried_hosts: BTreeSet<NodeName>,
    /// Allocations of standbys that ended for this failover, or failed to end.
    pub tried_standbys: BTreeSet<AllocationId>,
    /// Requested node. `None` accepts any node.
    pub requested: Option<NodeName>,
    /// Slot of the standby that must end first. `None` if the failover waits for no standby.
    pub waits_for: Option<usize>,
    /// Time at which that standby was stopped, in ms of the monotonic clock.
    pub since_ms: u64,
}

impl Failover {
    pub fn new(lost_allocation: Option<AllocationId>) -> Self {
        Self {
            lost_allocation,
            tried_hosts: BTreeSet::new(),
            tried_standbys: BTreeSet::new(),
            requested: None,
            waits_for: None,
            since_ms: 0,
        }
    }
}

impl Processors {
    /// Records that after a failure the last node of the processor is requested first. The
    /// failover then counts this node as tried.
    pub(super) fn record_last_host(
        &mut self,
        slot: usize,
        allocation: &AllocationId,
        host: &NodeName,
    ) {
        let mut failover = Failover::new(Some(allocation.clone()));
        failover.tried_hosts.insert(host.clone());
        failover.requested = Some(host.clone());
        self.by_slot[slot].failover = Some(failover);
        self.changed.insert(slot);
    }

    /// Starts a failover. Repeating it for the same loss changes nothing.
    pub(super) fn fail_over(&mut self, slot: usize, lost: Option<Placement<'_>>, now: Now) {
        let lost_allocation = lost.map(|lost| lost.allocation.clone());
        let before = self.by_slot[slot].failover.take();
        let mut failover = match before {
            Some(before)
                if lost_allocation.is_some() && before.lost_allocation == lost_allocation =>
            {
                self.by_slot[slot].failover = Some(before);
                return;
            }
            // The active was lost again before it ran. The same failover continues with the nodes
            // tried so far.
            Some(before) => Failover {
                lost_allocation,
                ..before
            },
            None => Failover::new(lost_allocation),
        };
        failover
            .tried_hosts
            .extend(lost.map(|lost| lost.host.clone()));
        self.by_slot[slot].failover = Some(failover);
        self.choose_host(slot, now);
    }

    /// Chooses the next node that this failover has not tried: the node of the longest-running
    /// standby, then the last node of a standby without a process, then any node. The longest-
    /// running standby has the most state to take over.
    pub(super) fn choose_host(&mut self, slot: usize, now: Now) {
        let mut failover = self.by_slot[slot]
            .failover
            .take()
            .unwrap_or_else(|| Failover::new(None));
        (failover.requested, failover.waits_for) = (None, None);
        let standbys: Vec<usize> = self.settings.standbys_of(slot).collect();
        let is_untried =
            |host: &NodeName| !failover.tried_hosts.contains(host) && !self.closed.contains(host);
        let running = standbys.iter().copied().filter_map(|standby| {
            let occupant = self.by_slot[standby].occupant.as_ref()?;
            let was_tried = failover.tried_standbys.contains(&occupant.allocation);
            let since_ms = occupant
                .up_since_ms
                .filter(|_| is_untried(&occupant.host) && !was_tried)?;
            Some((since_ms, standby))
        });
        let longest_running = running.min().map(|(_, standby)| standby);
        let find_last_host = || {
            let mut hosts = standbys.iter().filter_map(|standby| {
                let standby = &self.by_slot[*standby];
                let is_down = standby.occupant.is_none();
                standby.last_host.clone().filter(|_| is_down)
            });
            hosts.find(is_untried)
        };
        if let Some(standby) = longest_running {
            let Some(occupant) = self.by_slot[standby].occupant.clone() else {
                return;
            };
            self.check_violation(slot, &occupant.host);
            let event = format!(
                "fails over to {}, where a standby of it runs",
                occupant.host
            );
            failover.tried_hosts.insert(occupant.host.clone());
            failover.tried_standbys.insert(occupant.allocation);
            failover.requested = Some(occupant.host);
            (failover.waits_for, failover.since_ms) = (Some(standby), now.monotonic_ms);
            self.by_slot[slot].failover = Some(failover);
            self.stop_standby(standby, now);
            self.record_event(slot, &event);
        } else if let Some(host) = find_last_host() {
            let event = format!("fails over to {host}, where a standby of it was last seen");
            failover.tried_hosts.insert(host.clone());
            failover.requested = Some(host.clone());
            self.by_slot[slot].failover = Some(failover);
            self.open_request(slot, Some(host), now, 0);
            self.record_event(slot, &event);
        } else {
            // The choice of any node is recorded as well. Otherwise the next end would start a new
            // failover, which tries the same nodes again.
            self.by_slot[slot].failover = Some(failover);
            self.open_request(slot, None, now, 0);
            self.record_event(slot, "fails over to any host");
        }
        self.changed.insert(slot);
    }

    /// Stops a standby, so that its active can use the node.
    pub(super) fn stop_standby(&mut self, standby: usize, now: Now) {
        if let Some(processor) = self.by_slot.get_mut(standby) {
            processor.is_yielding = true;
        }
        if let Some(active) = self.settings.partners(standby).next()
            && let Some(failover) = &mut self.by_slot[active].failover
        {
            failover.since_ms = now.monotonic_ms;
        }
    }

    /// Continues a failover that waits for a standby. When the standby has ended, the active
    /// requests its node, and the standby requests any node. If the standby does not end in time,
    /// or its node is lost, the next node is chosen.
    pub(super) fn continue_failover(&mut self, slot: usize, timeouts: Timeouts, now: Now) {
        let failover = self.by_slot[slot].failover.as_ref();
        let Some((standby, since_ms, host)) =
            failover.and_then(|it| Some((it.waits_for?, it.since_ms, it.requested.clone())))
        else {
            return;
        };
        let within_timeout = now.monotonic_ms.saturating_sub(since_ms) < timeouts.stop_ms;
        let has_ended = self.by_slot[standby].alive == 0;
        // The active has a process again, because an action placed it or its node is back.
        let is_unneeded = self.by_slot[slot].occupant.is_some();
        if !has_ended && within_timeout && !is_unneeded {
            return;
        }
        self.by_slot[standby].is_yielding = false;
        if let Some(failover) = &mut self.by_slot[slot].failover {
            failover.waits_for = None;
        }
        self.changed.insert(slot);
        if has_ended {
            self.open_request(standby, None, now, 0);
        }
        let is_host_closed = host.as_ref().is_some_and(|host| self.closed.contains(host));
        if has_ended && is_host_closed && !is_unneeded {
            self.choose_host(slot, now);
        } else if has_ended || is_unneeded {
            self.open_request(slot, host, now, 0);
        } else {
            self.record_event(standby, "does not end; its active looks for another host");
            self.choose_host(slot, now);
        }
    }

    /// Records a violation if two standbys of one active are on the same node.
    fn check_violation(&mut self, slot: usize, host: &NodeName) {
        let is_on_host = |standby: &usize| {
            let occupant = self.by_slot[*standby].occupant.as_ref();
            occupant.is_some_and(|occupant| occupant.host == *host)
        };
        let count = self.settings.standbys_of(slot).filter(is_on_host).count();
        if count > 1 {
            let processor = self.settings.id_at(slot);
            self.violation = Some(format!(
                "{count} standbys of processor {processor} are on {host}, which must never be"
            ));
        }
    }
}
