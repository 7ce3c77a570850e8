//! The plan of one round. The committer carries it out in order and adds only ids and incarnations.

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, UserName, WorkId, WorkKind};
use serde::{Deserialize, Serialize};

use crate::input::snapshot::{Allocation, Carried};

pub use super::external_planner_effects;
pub use super::reason::{Reason, Unblock};
pub use super::shares::{
    CapParts, ClassShare, GroupQuanta, Idle, PoolShare, PriorityShare, ShareDelta, Shares, Tally,
    UserShare, UserWorkCount, WorkShare,
};

/// All decisions of one round, with their explanations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub round: u64,
    pub at: Timestamp,
    pub grants: Vec<Grant>,
    /// Vacates, sorted by allocation id.
    pub vacates: Vec<Vacate>,
    /// Verdicts, one for each piece of work in the demand.
    pub verdicts: Verdicts,
    pub shares: Shares,
    /// Receipts, one for each preempted allocation.
    #[serde(default)]
    pub receipts: Vec<Receipt>,
    /// State that is carried over to the next round.
    #[serde(default)]
    pub carried: Carried,
    /// Effect of the responses of external planners, by top-level pool.
    #[serde(
        rename = "outside",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub external_planners: BTreeMap<String, external_planner_effects::ResponseEffect>,
}

impl Plan {
    /// Returns true if the plan changes no allocation.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.vacates.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub work: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    /// Class that serves the work. The name is shared, because each process of the class has it.
    pub class: Arc<str>,
    pub node: NodeName,
    #[serde(rename = "order")]
    pub quanta: u64,
    /// Size of the process. For a reservation, the size of the whole node.
    pub size: Size,
    /// True if the process is never preempted.
    pub fixed: bool,
    /// Numbers of the GPUs that the process uses.
    #[serde(default)]
    pub gpus: Vec<u64>,
    /// User group whose quota is charged for the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl Grant {
    /// Returns the allocation that results from the grant and starts at this time.
    pub fn to_allocation(&self, granted_at: Timestamp) -> Allocation {
        Allocation {
            work: self.work.clone(),
            kind: self.kind,
            user: self.user.clone(),
            class: self.class.to_string(),
            node: self.node.clone(),
            quanta: self.quanta,
            size: self.size.clone(),
            fixed: self.fixed,
            granted_at,
            running: false,
            started_at: Some(granted_at),
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

/// One preemption: the preempted allocation, the work that benefits, and the lost work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    #[serde(rename = "order")]
    pub quanta: u64,
    /// Milliseconds lost with the allocation, spent on starting or on tasks in flight.
    pub lost_ms: u64,
    /// Work that gets the space. `None` if the process left only because of the entitlements.
    #[serde(default)]
    pub beneficiary: Option<WorkId>,
    /// User of the beneficiary.
    #[serde(default)]
    pub for_user: Option<UserName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vacate {
    pub allocation: AllocationId,
    pub reason: VacateReason,
    /// Explanation for users, as one sentence.
    pub detail: String,
    /// True if the allocation ends at once, because its node cannot confirm the end.
    pub purge: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VacateReason {
    /// Other work is entitled to the space.
    Preempted,
    /// The class of the work may not use this pool any more.
    Misplaced,
    /// The node is blocked with evacuation.
    Blocked,
    NodeLost,
    NodeOffline,
    /// The work may have fewer processes now, because of its own limit.
    OwnLimit,
    /// The work was withdrawn or lost its class.
    WorkGone,
}

/// Verdicts by work. They are boxed, because building the map moves its values.
pub type Verdicts = BTreeMap<WorkId, Box<Verdict>>;

/// Changed verdicts, each once and in no order.
pub type ChangedVerdicts = Vec<(WorkId, Verdict)>;

/// Boxes changed verdicts for merging into [`Verdicts`].
pub fn box_verdicts(changed: ChangedVerdicts) -> impl Iterator<Item = (WorkId, Box<Verdict>)> {
    let changed = changed.into_iter();
    changed.map(|(work, verdict)| (work, Box::new(verdict)))
}

/// Explanation why a piece of work has its present processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub reason: Reason,
    /// True if the work has no process, or fewer than its entitlement.
    #[serde(default)]
    pub waits: bool,
    /// True if the work can never be served as it is.
    #[serde(default)]
    pub refused: bool,
    /// Class that serves the work, either requested or by default.
    #[serde(default)]
    pub class: Option<Arc<str>>,
    pub detail: String,
    #[serde(default)]
    pub numbers: Numbers,
    /// Reasons that would remain if `reason` were resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Reason>,
    /// Smallest change that would start one more process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<Unblock>,
}

/// Numbers of a verdict, in quanta unless stated otherwise. Field names are those of the API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    pub counted_processes: u64,
    pub current_processes: u64,
    pub leaving_processes: u64,
    #[serde(rename = "order")]
    pub quanta: u64,
    pub wanted_processes: u64,
    /// Budget numbers, if the work waits for preemption budget (B5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetNumbers>,
    /// Quota numbers, if the work waits for quota. The sentence names the owner and the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaNumbers>,
}

/// Quota of a queue, user or group: its limit, its use, and the amount that one more process needs.
/// The unit is that of the resource: bytes, thousandths or applications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaNumbers {
    pub limit: u64,
    pub used: u64,
    pub needed: u64,
}

/// Preemption budget of an hour: the allowed quanta, the spent quanta, and the quanta that this
/// process needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetNumbers {
    pub allowed_quanta: u64,
    pub spent_quanta: u64,
    pub needed_quanta: u64,
}

impl Numbers {
    /// Returns the numbers by their names in the API.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let named = [
            ("counted_processes", self.counted_processes),
            ("current_processes", self.current_processes),
            ("leaving_processes", self.leaving_processes),
            ("order", self.quanta),
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
