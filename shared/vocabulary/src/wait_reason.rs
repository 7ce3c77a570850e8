//! Why a piece of work waits or is refused. The planner finds the reason, and clients read it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All reasons to wait or to be refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// It has everything it can use.
    Satisfied,
    /// Competition leaves it nothing in this round.
    ZeroShare,
    /// It is entitled to more than it holds; other processes must leave first.
    WaitingForPreemption,
    /// It is entitled to more, but the free space is split over nodes.
    WaitingForDefragmentation,
    /// It has a fixed size, and no node has enough free space now.
    InsufficientResources,
    /// No node of its pool is large enough for one process.
    NoHostLargeEnough,
    /// It is a reservation, and no node has an acceptable size.
    NoHostOfSize,
    /// It is a reservation, and no node of an acceptable size can be emptied.
    ResourcesExhausted,
    /// It would exceed the allotment of its user.
    AllotmentExceeded,
    /// No node of its node list exists.
    NoListedMachine,
    /// Every node that could hold it is blocked.
    AllBlocked,
    /// All free space is where its active process or its standby is.
    #[serde(rename = "kept_apart")]
    AntiAffinity,
    /// It starts: until the first process has shown its speed, the initialisation cap limits it.
    InitializationCap,
    /// It has its share; the rest belongs to others.
    AtFairShare,
    /// A neighbour of the scheduler has been silent for too long, so nothing is revoked.
    StaleInput,
    /// It names no class, and there is no default class.
    NoClass,
    /// There is no class of the name that it gives.
    UnknownClass,
    /// Its user is not on the allow list of the class.
    NotAuthorised,
    /// Its class cannot serve this kind of work.
    PolicyMismatch,
    /// Its queue or a parent queue is at its maximum.
    QueueQuota,
    /// Its user or group is at its limit in the queue or a parent queue.
    UserQuota,
    /// Its queue or its user runs as many applications as allowed.
    NotRunnable,
    /// Too many requests of its application failed, so it pauses.
    BackingOff,
    /// Its gang does not fit as a whole, and no part of it starts alone.
    GangIncomplete,
    /// The free space is reserved for work that has waited longer.
    NodesReserved,
    /// The external planner of its pool did not place it, did not respond, or was refused.
    #[serde(rename = "outside_planner")]
    ExternalPlanner,
    /// A reason of a newer scheduler. The planner never gives it.
    #[serde(other)]
    Unknown,
}
