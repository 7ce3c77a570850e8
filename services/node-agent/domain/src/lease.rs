//! Decides how long leased work may run: tasks leased by job-converter, and exclusive work on a
//! node leased by node-status (I4).
//!
//! The grantor counts a lease from the time of the response, the holder from the time of the
//! request. The holder therefore always stops first, however long the response took. The holder
//! starts to stop its work one margin before the end.
//! All times are of one monotonic clock of the holder, so changes of the wall clock have no effect.
//! The clock must also count the time in suspend, so that a node that slept has lost its lease.

use serde::{Deserialize, Serialize};

/// A lease in times of the holder's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Time at which the last answered request was sent, in milliseconds.
    #[serde(rename = "asked_ms")]
    requested_ms: u64,
    /// Duration from the request to the end of the lease, in milliseconds.
    lease_ms: u64,
}

impl Lease {
    pub fn new(requested_ms: u64, lease_ms: u64) -> Self {
        Self {
            requested_ms,
            lease_ms,
        }
    }

    /// Returns the time reserved for ending the work: a tenth of the lease, at most five seconds.
    pub fn margin_ms(self) -> u64 {
        (self.lease_ms / 10).min(5_000)
    }

    /// Returns when to renew: after a third of the lease, so that two more attempts fit before the
    /// end.
    pub fn renew_at_ms(self) -> u64 {
        self.requested_ms.saturating_add(self.lease_ms / 3)
    }

    /// Returns when the holder must begin to stop the work.
    pub fn stop_at_ms(self) -> u64 {
        self.requested_ms
            .saturating_add(self.lease_ms - self.margin_ms())
    }

    /// Returns when all work must have ended.
    pub fn end_ms(self) -> u64 {
        self.requested_ms.saturating_add(self.lease_ms)
    }

    pub fn is_valid_at(self, now_ms: u64) -> bool {
        now_ms < self.stop_at_ms()
    }

    pub fn lease_ms(self) -> u64 {
        self.lease_ms
    }

    /// Returns the newest lease after `read` was found in the lease file. A lease that is older
    /// than `last`, or requested in the future, is from another agent or boot and is ignored. A
    /// missing lease changes nothing.
    pub fn latest(last: Option<Self>, read: Option<Self>, now_ms: u64) -> Option<Self> {
        match (last, read) {
            (_, Some(read)) if read.requested_ms > now_ms => last,
            (Some(previous), Some(read)) if read.requested_ms < previous.requested_ms => last,
            (_, Some(read)) => Some(read),
            (last, None) => last,
        }
    }
}

/// Action that exclusive work requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// The work may run until the next check at this time.
    Run { until_ms: u64 },
    /// The work must end, and is killed at this time.
    Stop { kill_at_ms: u64 },
    /// The work must be killed at once.
    Kill,
}

/// Returns the required action. Exclusive work neither starts nor runs without a lease.
pub fn required_action(now_ms: u64, lease: Option<Lease>) -> LeaseAction {
    match lease {
        Some(lease) if lease.is_valid_at(now_ms) => LeaseAction::Run {
            until_ms: lease.stop_at_ms(),
        },
        Some(lease) if now_ms < lease.end_ms() => LeaseAction::Stop {
            kill_at_ms: lease.end_ms(),
        },
        _ => LeaseAction::Kill,
    }
}

/// A sequence of leases without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    pub lease: Lease,
    /// Time at which the request for the first lease was sent, in milliseconds.
    pub since_ms: u64,
}

impl Tenure {
    /// Adds a lease. A late response may leave a gap, which starts a new tenure.
    pub fn renew(previous: Option<Self>, lease: Lease, response_ms: u64) -> Self {
        let since_ms = previous
            .filter(|previous| previous.lease.is_valid_at(response_ms))
            .map_or(lease.requested_ms, |previous| previous.since_ms);
        Self { lease, since_ms }
    }

    /// Returns whether exclusive work may start. At the start of a tenure, work waits for one
    /// margin. The control plane may have declared the node lost before the tenure, and the
    /// withdrawal of its work may still be under way.
    pub fn may_start(self, now_ms: u64) -> bool {
        let settled_ms = self.since_ms.saturating_add(self.lease.margin_ms());
        now_ms >= settled_ms && self.lease.is_valid_at(now_ms)
    }
}

#[cfg(test)]
mod tests;
