//! What may be asked of the working set, and what it answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hayward_blocklist_api::BlockEntry;
use hayward_container_manager_api::{ContainerEntry, RequestEntry};
use hayward_job_converter_api::DemandEntry;
use hayward_node_status_api::NodeEntry;
use hayward_publication::invariants::Findings;
use hayward_publication::{Reply, Update};
use hayward_rm_scheduler_api as api;
use hayward_rm_scheduler_api::load::Load;
use hayward_rm_scheduler_api::occupancy::Occupancy;
use hayward_rm_scheduler_api::policy::{Policy, PolicyAnswer};
use hayward_rm_scheduler_api::queues::Queues;
use hayward_rm_scheduler_domain::Snapshot;
use hayward_rm_scheduler_domain::snapshot::outside::Answer;
use hayward_rm_scheduler_policy::{Fault, Reading, Rules};
use hayward_vocabulary::{AllocationId, NodeName, UserName, WorkId, WorkKind};

use crate::error::Refusal;
use crate::worker_pools;

pub enum Command {
    Nodes(Update<NodeEntry>, Reply<()>),
    Demand(Update<DemandEntry>, Reply<()>),
    Blocks(Update<BlockEntry>, Reply<()>),
    Containers(Update<ContainerEntry>, Reply<()>),
    Requests(Update<RequestEntry>, Reply<()>),
    /// What is asked for against what there is; nothing before the first round.
    Load(Reply<Option<Load>>),
    /// Who stands where.
    NodeContents(Box<NodeFilter>, Reply<Occupancy>),
    SetPolicy(Box<SetPolicy>, Reply<Result<PolicyAnswer, Refusal>>),
    /// A copy of the fleet as it is, and as it would be under another policy; with what it cost.
    /// Nothing before all neighbours have been heard.
    CopyFleet(
        Option<Box<PolicyQuestion>>,
        Reply<Option<(FleetCopy, Duration)>>,
    ),
    /// What stands on these nodes.
    ProcessesOn(BTreeSet<NodeName>, Reply<Vec<ProcessOnNode>>),
    /// Queues of one pool, or of all.
    /// Nothing before all neighbours have been heard.
    Queues(Option<String>, Reply<Option<Queues>>),
    /// A planner outside answered, or did not.
    PlannerAnswered(Box<PlannerOutcome>, Reply<()>),
    /// Who plans for each pool. Nothing before all neighbours have been heard.
    Planners(Reply<Option<api::planners::Planners>>),
    /// How the invariants stand.
    Invariants(Reply<Findings>),
    /// Somebody asked about a worker pool, and is answered by what they asked.
    WorkerPools(Box<worker_pools::Act>),
}

/// `PUT /v1/policy`
pub struct SetPolicy {
    pub document: Reading,
    /// Generation the change was made from (`If-Match`).
    pub from_generation: u64,
    pub changed_by: String,
    /// Check only.
    pub dry_run: bool,
    /// Classes may go although work is in them.
    pub drop_classes: bool,
}

/// A policy that somebody asks about.
#[derive(Debug, Clone)]
pub struct PolicyQuestion {
    pub policy: Policy,
    /// Its classes may leave out some that work is in.
    pub drop_classes: bool,
}

/// The fleet as it would be under another policy.
#[derive(Debug, Clone)]
pub struct FleetUnderPolicy {
    pub snapshot: Snapshot,
    pub rules: Arc<Rules>,
}

/// A copy of the fleet at one moment.
#[derive(Debug, Clone)]
pub struct FleetCopy {
    pub snapshot: Arc<Snapshot>,
    /// By what nodes come into pools.
    pub rules: Arc<Rules>,
    /// Under the policy that was asked for, or what is wrong with that.
    pub under: Option<Result<FleetUnderPolicy, Vec<Fault>>>,
    /// The neighbour that is not heard.
    pub silent: Option<&'static str>,
    /// What is wanted on one host as long as that can be had.
    pub pinned: Arc<Vec<Pinned>>,
}

/// A process that is kept where it is, and the machines it may use once it has to leave (none
/// means any).
#[derive(Debug, Clone)]
pub struct Pinned {
    pub work: WorkId,
    pub host: NodeName,
    pub machines: BTreeSet<NodeName>,
}

impl FleetCopy {
    pub fn of(snapshot: &Snapshot, rules: Arc<Rules>) -> Self {
        Self {
            snapshot: Arc::new(snapshot.clone()),
            rules,
            under: None,
            silent: None,
            pinned: Arc::default(),
        }
    }
}

/// Which nodes are asked about.
#[derive(Debug, Default)]
pub struct NodeFilter {
    pub node: Option<NodeName>,
    /// Only the nodes of this pool itself.
    pub pool: Option<String>,
    /// Nodes after this one.
    pub after: Option<NodeName>,
    pub limit: usize,
}

/// What stands on a node, and what is known of moving it.
#[derive(Debug, Clone)]
pub struct ProcessOnNode {
    pub allocation: AllocationId,
    pub work: WorkId,
    /// What its disruption limit counts over: its service, or the work itself.
    pub group: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub node: NodeName,
    pub order: u64,
    /// Told to leave before; why.
    pub leaving: Option<String>,
    pub unreachable: bool,
    pub disruption_limit: Option<u64>,
    pub stop_grace_ms: u64,
    /// Absent while no process of the work has come up.
    pub start_ms: Option<u64>,
}

/// What came of a question.
pub struct PlannerOutcome {
    pub pool: String,
    pub revision: u64,
    pub took_ms: u64,
    pub outcome: Result<Answer, String>,
}
