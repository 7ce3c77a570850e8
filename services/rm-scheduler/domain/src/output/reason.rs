//! Why work waits, and what would help.

use hayward_vocabulary::NodeName;
use serde::{Deserialize, Serialize};

/// Closed list of reasons; names are those of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Satisfied,
    ZeroShare,
    WaitingForPreemption,
    WaitingForDefragmentation,
    InsufficientResources,
    NoHostLargeEnough,
    NoHostOfSize,
    ResourcesExhausted,
    AllotmentExceeded,
    NoListedMachine,
    AllBlocked,
    /// All free space is next to others of its group.
    KeptApart,
    InitializationCap,
    AtFairShare,
    /// Set by the caller if it does not plan at all.
    StaleInput,
    NoClass,
    UnknownClass,
    NotAuthorised,
    PolicyMismatch,
    /// Its queue, or one above, has its maximum.
    QueueQuota,
    /// Its user or group has its limit in the queue, or in one above.
    UserQuota,
    /// Its queue or user has as many running applications as allowed.
    NotRunnable,
    /// Its application failed too often and is paused.
    BackingOff,
    /// Its gang does not fit as a whole.
    GangIncomplete,
    /// All free space is reserved for work that waited longer.
    NodesReserved,
    /// The external planner of its pool did not place it, did not respond, or was refused.
    OutsidePlanner,
}

/// A change that would start waiting work, smallest first in this list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Unblock {
    /// Nothing has to change: the space is being vacated.
    Wait { leaving_processes: u64 },
    /// Quanta missing on the nearest node.
    FreeRoom { node: NodeName, quanta: u64 },
    /// Raise the allotment of the user by these bytes.
    RaiseAllotment { bytes: u64 },
    /// Ask for at most this many quanta in each process.
    AskForLess { quanta: u64 },
    /// Add a node of at least this many quanta to its pool, or to its node list.
    AddNode { quanta: u64 },
    /// Offer this named resource on a node of its pool.
    OfferResource { name: String },
    /// Open this node: remove its mark or block, vary it on, or bring it back.
    OpenNode { node: NodeName },
    /// Add this node to its node list, or drop the list.
    ListNode { node: NodeName },
    /// Give the class this many more quanta, by weight or by less demand of others.
    RaiseShare { quanta: u64 },
    /// Name a class that may serve it.
    NameClass,
    /// Allow at least this many percent to be preempted in an hour, of a pool or of one user (B5).
    RaisePreemptionBudget { user: bool, percent: u64 },
}

/// Why work is left out of counting.
#[derive(Debug, Clone)]
pub(crate) struct Deferral {
    pub reason: Reason,
    pub refused: bool,
    pub detail: String,
}
