//! Everything one round decided. Nothing is left to choose when it is carried out: the committer
//! only gives grants their ids and incarnations, in the order of the plan.

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};

use crate::input::snapshot::{Allocation, Carried};

pub use super::external as outside;
pub use super::shares::{
    CapParts, ClassShare, Idle, OfUser, PoolShare, PriorityShare, ShareDelta, Shares, Tally, Turn,
    UserShare, WorkShare,
};
pub use super::{
    packed_share::PackedShare,
    reason::{Reason, Unblock},
    sentence::Sentence,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub round: u64,
    pub at: Timestamp,
    pub grants: Vec<Grant>,
    /// By allocation id.
    pub vacates: Vec<Vacate>,
    /// One for every piece of work in the demand.
    pub verdicts: Verdicts,
    pub shares: Shares,
    /// One for every share that was taken back for the sake of others.
    #[serde(default)]
    pub receipts: Vec<Receipt>,
    /// What the next round has to know of this one.
    #[serde(default)]
    pub carried: Carried,
    /// What was made of answers of planners outside, by top-level pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outside: BTreeMap<String, outside::Taken>,
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
    /// Shared: a round says it of each process.
    pub class: Arc<str>,
    pub node: NodeName,
    pub order: u64,
    /// What the process gets; of a reservation the whole node.
    pub size: Size,
    /// Not preemptable.
    pub fixed: bool,
    /// The gpus it sits on, by number.
    #[serde(default)]
    pub gpus: Vec<u64>,
    /// Of work in a queue: the group that was chosen for it (7.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl Grant {
    /// What it is once it is carried out: held and being started from this instant on.
    pub fn taken_up(&self, at: Timestamp) -> Allocation {
        Allocation {
            work: self.work.clone(),
            kind: self.kind,
            user: self.user.clone(),
            class: self.class.to_string(),
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
            group: self.group.clone(),
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

/// Each lies apart, as a map moves what is in it several times while it is built.
pub type Verdicts = BTreeMap<WorkId, Box<Verdict>>;

/// Those that became different: each once, in no order.
pub type ChangedVerdicts = Vec<(WorkId, Verdict)>;

/// As they go among all [`Verdicts`].
pub fn into_map(news: ChangedVerdicts) -> impl Iterator<Item = (WorkId, Box<Verdict>)> {
    let news = news.into_iter();
    news.map(|(work, verdict)| (work, Box::new(verdict)))
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
    pub class: Option<Arc<str>>,
    pub detail: Sentence,
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
    /// Where it is for want of budget that it waits (B5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetNumbers>,
    /// Where it is for want of quota that it waits; the sentence names whose and of what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaNumbers>,
}

/// What a queue, a user or a group may have, has, and what one more process needs of it. In the
/// unit of the type: bytes, thousandths, applications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaNumbers {
    pub limit: u64,
    pub used: u64,
    pub needed: u64,
}

/// What may be taken back in an hour, what has been, and what this process needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetNumbers {
    pub allowed_quanta: u64,
    pub spent_quanta: u64,
    pub needed_quanta: u64,
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
        let budget = self.budget.map(|budget| {
            [
                ("budget_allowed_quanta", budget.allowed_quanta),
                ("budget_spent_quanta", budget.spent_quanta),
                ("budget_needed_quanta", budget.needed_quanta),
            ]
        });
        let quota = self.quota.map(|quota| {
            [
                ("quota_limit", quota.limit),
                ("quota_used", quota.used),
                ("quota_needed", quota.needed),
            ]
        });
        let limits = budget.into_iter().flatten();
        let all = named.into_iter().chain(limits);
        let all = all.chain(quota.into_iter().flatten());
        all.map(|(name, number)| (name.to_owned(), number))
            .collect()
    }
}
