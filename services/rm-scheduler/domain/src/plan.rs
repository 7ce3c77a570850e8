//! Everything one round decided. Nothing is left to choose when it is carried out: the committer
//! only gives grants their ids and incarnations, in the order of the plan.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub round: u64,
    pub at: Timestamp,
    pub grants: Vec<Grant>,
    /// By allocation id.
    pub vacates: Vec<Vacate>,
    /// One for every piece of work in the demand.
    pub verdicts: BTreeMap<WorkId, Verdict>,
    pub shares: Shares,
}

impl Plan {
    /// True when carrying it out changes no allocation.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.vacates.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub order: u64,
    /// What the process gets; of a reservation the whole node.
    pub size: Size,
    /// Not preemptable.
    pub fixed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vacate {
    pub allocation: AllocationId,
    pub reason: VacateReason,
    /// One sentence for people.
    pub detail: String,
    /// The node cannot answer: nothing more is awaited from it.
    pub purge: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VacateReason {
    /// Others are due the room, or its class may not be there any more.
    Preempted,
    /// The node is blocked with evacuation.
    Blocked,
    NodeLost,
    NodeOffline,
    /// The work is withdrawn, wants fewer processes, or lost its class.
    WorkGone,
}

/// Why a piece of work has what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub reason: Reason,
    /// True when it will never be served as it stands.
    #[serde(default)]
    pub refused: bool,
    /// The class it is served in; a default may have been filled in.
    #[serde(default)]
    pub class: Option<String>,
    pub detail: String,
    /// In quanta unless the name says otherwise.
    #[serde(default)]
    pub numbers: BTreeMap<String, u64>,
}

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
    InitializationCap,
    AtFairShare,
    /// Never said by a planner: the caller says it when it does not plan at all.
    StaleInput,
    NoClass,
    UnknownClass,
    NotAuthorised,
    PolicyMismatch,
}

/// The arithmetic from capacity to each piece of work, in quanta, as it stands once this plan is
/// carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Quanta of the nodes that take work.
    pub capacity: u64,
    /// Quanta held by anything, leaving or not, on any node.
    pub held: u64,
    /// Quanta free on the nodes that take work.
    pub free: u64,
    pub classes: BTreeMap<String, ClassShare>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassShare {
    pub weight: u64,
    pub due: u64,
    pub held: u64,
    pub users: BTreeMap<UserName, UserShare>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserShare {
    pub due: u64,
    pub held: u64,
    pub work: BTreeMap<WorkId, WorkShare>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkShare {
    pub kind: WorkKind,
    /// Quanta of one process.
    pub order: u64,
    /// Processes it can use in this round (the cap).
    pub wanted: u64,
    /// Processes it is due.
    pub counted: u64,
    /// Processes it has, without those told to leave, with those granted by this plan.
    pub current: u64,
    pub leaving: u64,
}
