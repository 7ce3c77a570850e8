//! Everything one round decided. Nothing is left to choose when it is carried out: the committer
//! only gives grants their ids and incarnations, in the order of the plan.

mod shares;

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};

use crate::snapshot::{Allocation, Carried};

pub use shares::{
    CapParts, ClassShare, Idle, PoolShare, PriorityShare, ShareNews, Shares, Tally, Turn,
    UserShare, WorkShare,
};

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
    /// One for every share that was taken back for the sake of others.
    #[serde(default)]
    pub receipts: Vec<Receipt>,
    /// What the next round has to know of this one.
    #[serde(default)]
    pub carried: Carried,
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
    /// The gpus it sits on, by number.
    #[serde(default)]
    pub gpus: Vec<u64>,
}

impl Grant {
    /// What it is once it is carried out: held and being started from this instant on.
    pub fn taken_up(&self, at: Timestamp) -> Allocation {
        Allocation {
            work: self.work.clone(),
            kind: self.kind,
            user: self.user.clone(),
            class: self.class.clone(),
            node: self.node.clone(),
            order: self.order,
            size: self.size.clone(),
            fixed: self.fixed,
            granted_at: at,
            running: false,
            started_at: Some(at),
            running_since: None,
            investment_ms: None,
            item_ms: None,
            gpus: self.gpus.clone(),
            leaving: false,
            purged: false,
        }
    }
}

/// Who gave up what for whom, and what was lost with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    pub order: u64,
    /// Milliseconds of starting, or of tasks in flight.
    pub lost_ms: u64,
    /// Absent when the counts alone said so, in nobody's favour in particular.
    #[serde(default)]
    pub beneficiary: Option<WorkId>,
    #[serde(default)]
    pub for_user: Option<UserName>,
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
    /// Others are due the room.
    Preempted,
    /// Its class may not be in this pool any more.
    Misplaced,
    /// The node is blocked with evacuation.
    Blocked,
    NodeLost,
    NodeOffline,
    /// The work itself may have fewer processes now, whatever others want.
    OwnLimit,
    /// The work is withdrawn, or lost its class.
    WorkGone,
}

/// Why a piece of work has what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub reason: Reason,
    /// True when it has no process, or less than it is due in spite of section 12.
    #[serde(default)]
    pub waits: bool,
    /// True when it will never be served as it stands.
    #[serde(default)]
    pub refused: bool,
    /// The class it is served in; a default may have been filled in.
    #[serde(default)]
    pub class: Option<String>,
    pub detail: String,
    #[serde(default)]
    pub numbers: Numbers,
    /// What would keep it waiting if the reason above were gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Reason>,
    /// The smallest change that would let one more process of it start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
}

/// What a verdict rests on, in quanta unless the name says otherwise; by the names of the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    pub counted_processes: u64,
    pub current_processes: u64,
    pub leaving_processes: u64,
    pub order: u64,
    pub wanted_processes: u64,
}

impl Numbers {
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let named = [
            ("counted_processes", self.counted_processes),
            ("current_processes", self.current_processes),
            ("leaving_processes", self.leaving_processes),
            ("order", self.order),
            ("wanted_processes", self.wanted_processes),
        ];
        named.map(|(name, number)| (name.to_owned(), number)).into()
    }
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
    /// Add a node of at least this many quanta to its pool.
    AddNode { quanta: u64 },
    /// Take the mark or the block off this node.
    OpenNode { node: NodeName },
    /// Let the class have this many more quanta, by weight or by others wanting less.
    RaiseShare { quanta: u64 },
    /// Name a class that may serve it.
    NameClass,
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
