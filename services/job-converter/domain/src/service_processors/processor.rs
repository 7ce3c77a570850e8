//! One processor of a service: its stored state, its current process and its demand.

use hayward_vocabulary::{AllocationId, NodeName};

use super::{Failover, FailureRecord, ProcessorOutcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The processor has no process.
    Waiting,
    /// The processor has an allocation, but its process does not run yet.
    Pending,
    Running,
    /// The processor has used up its retries.
    Failed,
    /// The process ended with status 0.
    Completed,
}

/// The process that occupies a processor. It has not ended and is not vacating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    pub allocation: AllocationId,
    pub host: NodeName,
    /// Whether the process runs. A process that is stopping still counts as running.
    pub running: bool,
    /// Start of its uninterrupted running time, in ms of the scheduler's clock. `None` while the
    /// process does not run.
    pub up_since_ms: Option<i64>,
    /// Whether the process belongs to an older deployment.
    pub stale: bool,
}

/// Open request of a processor without a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Request {
    /// Requested node. `None` accepts any node.
    pub(super) host: Option<NodeName>,
    /// Start of its timeout, by the monotonic clock in ms.
    pub(super) since_ms: u64,
    /// Time of the retry, by the monotonic clock in ms.
    pub(super) not_before_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Processor {
    pub(super) occupant: Option<Occupant>,
    /// Number of allocations that have not ended.
    pub(super) alive: usize,
    pub(super) last_host: Option<NodeName>,
    /// Counted failures. `None` without any.
    pub(super) failures: Option<FailureRecord>,
    /// Outcome of the processor. `None` while the processor may start processes.
    pub(super) outcome: Option<ProcessorOutcome>,
    pub(super) request: Request,
    pub(super) failover: Option<Failover>,
    /// Whether this is a standby that ends so that its active can use the node.
    pub(super) is_yielding: bool,
    /// Whether the processor was stopped and starts again once none of its processes is alive.
    pub(super) is_restarting: bool,
    /// Whether the scheduler placed this processor after it had failed. The failure record is
    /// cleared when the processor runs.
    pub(super) is_returning: bool,
}

impl Processor {
    pub fn state(&self) -> State {
        match (&self.occupant, self.outcome) {
            (Some(occupant), _) if occupant.running => State::Running,
            (Some(_), _) => State::Pending,
            (None, Some(ProcessorOutcome::Failed)) => State::Failed,
            (None, Some(ProcessorOutcome::Completed)) => State::Completed,
            (None, None) => State::Waiting,
        }
    }

    pub fn failures(&self) -> Option<&FailureRecord> {
        self.failures.as_ref()
    }
    pub fn outcome(&self) -> Option<ProcessorOutcome> {
        self.outcome
    }
    pub fn failover(&self) -> Option<&Failover> {
        self.failover.as_ref()
    }
    /// Returns the current or last node.
    pub fn last_host(&self) -> Option<&NodeName> {
        self.last_host.as_ref()
    }
    pub fn occupant(&self) -> Option<&Occupant> {
        self.occupant.as_ref()
    }
    /// Returns true if the processor requests nothing, because it waits for a failover or for its
    /// old processes.
    pub(super) fn is_held(&self) -> bool {
        self.is_yielding || self.is_restarting
    }
    /// Returns the node of the open request. `None` without a request, or if it accepts any node.
    pub fn requested_host(&self) -> Option<&NodeName> {
        let is_open = self.occupant.is_none() && self.outcome.is_none() && !self.is_held();
        self.request.host.as_ref().filter(|_| is_open)
    }
}

/// Allocation and node of a process.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    pub allocation: &'a AllocationId,
    pub host: &'a NodeName,
}

/// Demand of one processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorDemand {
    /// Whether a process is wanted. `false` ends its process and starts none.
    pub wanted: bool,
    /// The only acceptable node. `None` accepts any node.
    pub host: Option<NodeName>,
}
