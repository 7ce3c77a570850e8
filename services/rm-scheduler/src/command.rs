//! Commands to the working set, and their answers.

mod pools;

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

pub use pools::{
    CreatePool, CreatedPool, PoolCall, PoolChange, PoolCommand, PoolReply, StopPool, StoppedPool,
};

pub enum Command {
    Nodes(Update<NodeEntry>, Reply<()>),
    Demand(Update<DemandEntry>, Reply<()>),
    Blocks(Update<BlockEntry>, Reply<()>),
    Containers(Update<ContainerEntry>, Reply<()>),
    Requests(Update<RequestEntry>, Reply<()>),
    /// Demand and supply; none before the first round.
    Load(Reply<Option<Load>>),
    /// Nodes with their allocations.
    NodeContents(Box<NodeFilter>, Reply<Occupancy>),
    SetPolicy(Box<SetPolicy>, Reply<Result<PolicyAnswer, Refusal>>),
    /// A copy of the fleet, with the time it took. None until all neighbours are heard.
    CopyFleet(
        Option<Box<PolicyQuestion>>,
        Reply<Option<(FleetCopy, Duration)>>,
    ),
    /// Processes on these nodes.
    ProcessesOn(BTreeSet<NodeName>, Reply<Vec<ProcessOnNode>>),
    /// Queues of one pool, or of all pools. None until all neighbours are heard.
    Queues(Option<String>, Reply<Option<Queues>>),
    /// The outcome of a question to an external planner.
    PlannerAnswered(Box<PlannerOutcome>, Reply<()>),
    /// The planner of each pool. None until all neighbours are heard.
    Planners(Reply<Option<api::planners::Planners>>),
    /// Results of the invariant checks.
    Invariants(Reply<Findings>),
    WorkerPools(Box<PoolCommand>),
}

/// `PUT /v1/policy`
pub struct SetPolicy {
    pub document: Reading,
    /// Generation the change was made from (`If-Match`).
    pub from_generation: u64,
    pub changed_by: String,
    /// Checks, and changes nothing.
    pub dry_run: bool,
    /// Allows to remove classes with work in them.
    pub drop_classes: bool,
}

/// A policy to preview.
#[derive(Debug, Clone)]
pub struct PolicyQuestion {
    pub policy: Policy,
    /// Allows to remove classes with work in them.
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
    /// The rules that put nodes into pools.
    pub rules: Arc<Rules>,
    /// The fleet under the policy of the question, or the faults of that policy.
    pub under: Option<Result<FleetUnderPolicy, Vec<Fault>>>,
    /// The neighbour that has been silent for too long.
    pub silent: Option<&'static str>,
    /// Work that is bound to one node while that node can be used.
    pub pinned: Arc<Vec<Pinned>>,
}

/// A process bound to its node. `machines`: the nodes it may use once it has to leave; empty means
/// any.
#[derive(Debug, Clone)]
pub struct Pinned {
    pub work: WorkId,
    pub host: NodeName,
    pub machines: BTreeSet<NodeName>,
}

impl FleetCopy {
    pub fn new(snapshot: &Snapshot, rules: Arc<Rules>) -> Self {
        Self {
            snapshot: Arc::new(snapshot.clone()),
            rules,
            under: None,
            silent: None,
            pinned: Arc::default(),
        }
    }
}

/// Selects nodes.
#[derive(Debug, Default)]
pub struct NodeFilter {
    pub node: Option<NodeName>,
    /// Nodes of this pool without those of its children.
    pub pool: Option<String>,
    /// Nodes after this one, by name.
    pub after: Option<NodeName>,
    pub limit: usize,
}

/// A process on a node, with the facts about moving it.
#[derive(Debug, Clone)]
pub struct ProcessOnNode {
    pub allocation: AllocationId,
    pub work: WorkId,
    /// Its disruption limit counts over this service, or over the work itself.
    pub group: WorkId,
    pub kind: WorkKind,
    pub user: UserName,
    pub node: NodeName,
    pub order: u64,
    /// Why it was ordered to leave before.
    pub leaving: Option<String>,
    pub unreachable: bool,
    pub disruption_limit: Option<u64>,
    pub stop_grace_ms: u64,
    /// None until a process of the work has run.
    pub start_ms: Option<u64>,
}

/// Outcome of a question to an external planner.
pub struct PlannerOutcome {
    pub pool: String,
    pub revision: u64,
    pub took_ms: u64,
    pub outcome: Result<Answer, String>,
}
