//! How long leased work may run (I4): tasks that job-converter leased to a process, and exclusive
//! work on a node that node-status leased a time to.
//!
//! The lender counts the lease from when it answered, the holder from when it *asked*: whatever the
//! answer took on its way, the holder is the first to stop. It begins to stop a margin earlier
//! still, and is done when the lease ends. All times are of one monotonic clock of the holder, so
//! steps of the wall clock do not exist here; where that clock counts suspend, a machine that slept
//! wakes up without a lease.

use serde::{Deserialize, Serialize};

/// A lease by the holder's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When the request left that was answered last.
    asked_ms: u64,
    lease_ms: u64,
}

impl Lease {
    pub fn new(asked_ms: u64, lease_ms: u64) -> Self {
        Self { asked_ms, lease_ms }
    }

    /// Time kept free to end what runs: a tenth, at most five seconds.
    pub fn margin_ms(self) -> u64 {
        (self.lease_ms / 10).min(5_000)
    }

    /// From here on it should be renewed: two more tries fit before the end.
    pub fn renew_at_ms(self) -> u64 {
        self.asked_ms.saturating_add(self.lease_ms / 3)
    }

    /// From here on nothing may run under it but what is being ended.
    pub fn stop_at_ms(self) -> u64 {
        self.asked_ms
            .saturating_add(self.lease_ms - self.margin_ms())
    }

    /// From here on nothing may run under it.
    pub fn end_ms(self) -> u64 {
        self.asked_ms.saturating_add(self.lease_ms)
    }

    pub fn holds(self, now_ms: u64) -> bool {
        now_ms < self.stop_at_ms()
    }

    pub fn lease_ms(self) -> u64 {
        self.lease_ms
    }

    /// What counts when `read` was found where leases are written: what is older than the last good
    /// one, or asked for in the future, is not from this agent and this boot, and nothing at all
    /// leaves the last good one as it is.
    pub fn latest(last: Option<Self>, read: Option<Self>, now_ms: u64) -> Option<Self> {
        match (last, read) {
            (_, Some(read)) if read.asked_ms > now_ms => last,
            (Some(known), Some(read)) if read.asked_ms < known.asked_ms => last,
            (_, Some(read)) => Some(read),
            (last, None) => last,
        }
    }
}

/// What becomes of exclusive work now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It may run; the question comes up again at this time.
    Run { until_ms: u64 },
    /// It is asked to end, and forced at this time.
    End { force_at_ms: u64 },
    /// It must not be there any more.
    Force,
}

/// Nothing that is exclusive runs, or starts, without a lease.
pub fn step(now_ms: u64, lease: Option<Lease>) -> Step {
    match lease {
        Some(lease) if lease.holds(now_ms) => Step::Run {
            until_ms: lease.stop_at_ms(),
        },
        Some(lease) if now_ms < lease.end_ms() => Step::End {
            force_at_ms: lease.end_ms(),
        },
        _ => Step::Force,
    }
}

/// Leases of a node that followed each other without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    pub lease: Lease,
    /// When the request left that was the first of them.
    pub since_ms: u64,
}

impl Tenure {
    /// A gap is any moment without a lease, also one that the answer came too late for.
    pub fn renewed(before: Option<Self>, lease: Lease, answered_ms: u64) -> Self {
        let since_ms = before
            .filter(|before| before.lease.holds(answered_ms))
            .map_or(lease.asked_ms, |before| before.since_ms);
        Self { lease, since_ms }
    }

    /// Whether exclusive work may be started. Not at once after a gap: the control plane may have
    /// given the node up and be about to take back what it ordered.
    pub fn may_start(self, now_ms: u64) -> bool {
        let settled_ms = self.since_ms.saturating_add(self.lease.margin_ms());
        now_ms >= settled_ms && self.lease.holds(now_ms)
    }
}

#[cfg(test)]
mod tests;
