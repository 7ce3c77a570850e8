//! Why work waits, and what would help.

use hayward_vocabulary::NodeName;
use serde::{Deserialize, Serialize};

/// The closed list of section 13.2 and what Hayward adds, by the names of the wire.
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
    /// What room there is, is where others of its group are.
    KeptApart,
    InitializationCap,
    AtFairShare,
    /// Never said by a planner: the caller says it when it does not plan at all.
    StaleInput,
    NoClass,
    UnknownClass,
    NotAuthorised,
    PolicyMismatch,
    /// Its queue, or one above, has its maximum.
    QueueQuota,
    /// Its user or group has its limit in the queue, or one above.
    UserQuota,
    /// As many applications run in its queue, or for its user, as may.
    NotRunnable,
    /// So much of its application failed that it is left alone for a while.
    BackingOff,
    /// Its gang does not fit as a whole, and no part of it starts alone.
    GangIncomplete,
    /// What room there is, is reserved for work that waited longer.
    NodesReserved,
    /// Its pool is planned outside: the planner there did not place it, was not heard, or what it
    /// said was refused.
    OutsidePlanner,
}

/// A change that would let waiting work start, smallest first in this list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Unblock {
    /// Nothing has to change: what leaves is on its way.
    Wait { leaving_processes: u64 },
    /// Quanta missing on the node that comes nearest.
    FreeRoom { node: NodeName, quanta: u64 },
    /// Raise the owner's allotment by this much.
    RaiseAllotment { bytes: u64 },
    /// Ask for at most this many quanta a process.
    AskForLess { quanta: u64 },
    /// Add a node of at least this many quanta to its pool; where it has a list, one of the list.
    AddNode { quanta: u64 },
    /// Let a node of its pool offer this named resource.
    OfferResource { name: String },
    /// Let this node take work: take its mark or its block off, vary it on, or bring it back.
    OpenNode { node: NodeName },
    /// Put this node into its list of machines, or ask for no list.
    ListNode { node: NodeName },
    /// Let the class have this many more quanta, by weight or by others wanting less.
    RaiseShare { quanta: u64 },
    /// Name a class that may serve it.
    NameClass,
    /// Let at least this many percent be taken back in an hour: of a pool, or of one user (B5).
    RaisePreemptionBudget { user: bool, percent: u64 },
}

/// Why a request is left out of counting, in the words of section 13.2.
#[derive(Debug, Clone)]
pub(crate) struct Deferral {
    pub reason: Reason,
    pub refused: bool,
    pub detail: String,
}
