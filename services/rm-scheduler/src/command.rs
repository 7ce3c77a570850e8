//! Commands to the working set, and their responses.

mod worker_pools;

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
use hayward_rm_scheduler_domain::snapshot::external_planners::PlannerResponse;
use hayward_rm_scheduler_policy::{Fault, ParsedPolicy, Rules};
use hayward_vocabulary::{AllocationId, NodeName, UserName, WorkId, WorkKind};

use crate::error::Refusal;

pub use worker_pools::{
    CreatePool, CreatedPool, PoolCall, PoolChange, PoolCommand, PoolReply, StopPool, StoppedPool,
};

pub enum Command {
    /// An update of the followed publication `nodes`. The next four variants are updates, too.
    Nodes(Update<NodeEntry>, Reply<()>),
    Demand(Update<DemandEntry>, Reply<()>),
    Blocks(Update<BlockEntry>, Reply<()>),
    Containers(Update<ContainerEntry>, Reply<()>),
    Requests(Update<RequestEntry>, Reply<()>),
    /// Demand and supply. `None` before the first round.
    Load(Reply<Option<Load>>),
    /// A page of nodes with their allocations.
    NodeContents(Box<NodeFilter>, Reply<Occupancy>),
    SetPolicy(Box<SetPolicy>, Reply<Result<PolicyAnswer, Refusal>>),
    /// A copy of the fleet, and the time that copying took. `None` until all neighbours have
    /// answered.
    CopyFleet(
        Option<Box<PolicyPreview>>,
        Reply<Option<(FleetCopy, Duration)>>,
    ),
    /// The processes on the given nodes.
    ProcessesOnNodes(BTreeSet<NodeName>, Reply<Vec<ProcessOnNode>>),
    /// The queues of one pool, or of all pools. `None` until all neighbours have answered.
    Queues(Option<String>, Reply<Option<Queues>>),
    /// The outcome of a request to an external planner.
    ApplyPlannerOutcome(Box<PlannerOutcome>, Reply<()>),
    /// The planner of each pool. `None` until all neighbours have answered.
    Planners(Reply<Option<api::planners::Planners>>),
    /// Results of the invariant checks.
    Invariants(Reply<Findings>),
    WorkerPools(Box<PoolCommand>),
}

/// Request of `PUT /v1/policy`.
pub struct SetPolicy {
    pub document: ParsedPolicy,
    /// Generation of the policy that the change is based on (`If-Match`).
    pub from_generation: u64,
    pub changed_by: String,
    /// True if the policy is only checked.
    pub dry_run: bool,
    /// True if classes with work in them may be removed.
    pub drop_classes: bool,
}

/// A policy whose effect is previewed.
#[derive(Debug, Clone)]
pub struct PolicyPreview {
    pub policy: Policy,
    /// True if classes with work in them may be removed.
    pub drop_classes: bool,
}

/// The fleet as it would be under another policy.
#[derive(Debug, Clone)]
pub struct PreviewedFleet {
    pub snapshot: Snapshot,
    pub rules: Arc<Rules>,
}

/// A copy of the fleet at one moment.
#[derive(Debug, Clone)]
pub struct FleetCopy {
    pub snapshot: Arc<Snapshot>,
    /// Rules that assign nodes to pools.
    pub rules: Arc<Rules>,
    /// Fleet as it would be under the previewed policy, or the faults of that policy. `None` if no
    /// policy is previewed.
    pub preview: Option<Result<PreviewedFleet, Vec<Fault>>>,
    /// Neighbour that has been silent for too long. `None` if there is none.
    pub silent: Option<&'static str>,
    /// Work that is bound to one node while that node can be used.
    pub pinned: Arc<Vec<PinnedWork>>,
}

/// Work whose process is bound to its node.
#[derive(Debug, Clone)]
pub struct PinnedWork {
    pub work: WorkId,
    pub host: NodeName,
    /// Nodes that the process may use once it must leave its node. An empty set allows every node.
    pub machines: BTreeSet<NodeName>,
}

impl FleetCopy {
    pub fn new(snapshot: &Snapshot, rules: Arc<Rules>) -> Self {
        Self {
            snapshot: Arc::new(snapshot.clone()),
            rules,
            preview: None,
            silent: None,
            pinned: Arc::default(),
        }
    }
}

/// Selects nodes.
#[derive(Debug, Default)]
pub struct NodeFilter {
    pub node: Option<NodeName>,
    /// Pool of the nodes. Nodes of the pools below it are not included.
    pub pool: Option<String>,
    /// Name of the node after which the list begins, in the order of names.
    pub after: Option<NodeName>,
    /// Maximum number of nodes.
    pub limit: usize,
}

/// A process on a node, with the facts about moving it.
#[derive(Debug, Clone)]
pub struct ProcessOnNode {
    pub allocation: AllocationId,
    pub work: WorkId,
    /// Job or service whose disruption limit counts. For work without parts, the work itself.
    pub group: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub node: NodeName,
    pub quanta: u64,
    /// Reason of an earlier order to leave. `None` if there was no such order.
    pub leave_reason: Option<String>,
    /// True if the node is lost and the process waits for it.
    pub unreachable: bool,
    /// Maximum number of processes of the group that are moved at a time. `None` if unlimited.
    pub disruption_limit: Option<u64>,
    /// Milliseconds from the signal to stop until the process is killed.
    pub stop_grace_ms: u64,
    /// Mean milliseconds from grant to start. `None` until a process of the work has run.
    pub start_ms: Option<u64>,
}

/// Outcome of a request to an external planner.
pub struct PlannerOutcome {
    pub pool: String,
    /// Revision of the request.
    pub revision: u64,
    /// Milliseconds from sending the request to the outcome.
    pub took_ms: u64,
    /// The response, or the reason of the failure.
    pub outcome: Result<PlannerResponse, String>,
}
