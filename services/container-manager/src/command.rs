//! Commands of the ledger, and their replies.

use hayward_container_manager_api::Report;
use hayward_container_manager_api::placements::{
    PlacementStatus, PlacementView, ProcessorView, ResourceRequestView,
};
use hayward_container_manager_placement::Destination;
use hayward_publication::invariants::Findings;
use hayward_publication::{Reply, Update};
use hayward_rm_scheduler_api::{AllocationEntry, ClosedEntry, ProcessorEntry};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp};

pub enum Command {
    AllocationsUpdate {
        update: Update<AllocationEntry>,
        reply: Reply<()>,
    },
    ProcessorsUpdate(Update<ProcessorEntry>, Reply<()>),
    ClosedNodesUpdate(Update<ClosedEntry>, Reply<()>),
    /// Checks the invariants.
    CheckInvariants(Reply<Findings>),
    Placement(Box<PlacementCommand>),
    ApplyReport(NodeReport, Reply<Result<(), ForeignContainers>>),
}

/// A report of an agent.
pub struct NodeReport {
    pub node: NodeName,
    /// Revision of the desired set that the agent had seen when it wrote the report. `None` if it
    /// had seen no revision.
    pub observed_revision: Option<u64>,
    pub report: Report,
}

/// Indices of the containers or chunks in a report that belong to another node.
#[derive(Debug)]
pub struct ForeignContainers(pub Vec<usize>);

impl ForeignContainers {
    /// Returns an error unless `indices` is empty.
    pub fn check(indices: Vec<usize>) -> Result<(), Self> {
        if indices.is_empty() {
            return Ok(());
        }
        Err(Self(indices))
    }
}

pub type PlacementReply<T> = Reply<Result<T, Refusal>>;

/// A command about placements, with its reply.
pub enum PlacementCommand {
    Submit {
        request: SubmittedRequest,
        owner: OwnerFilter,
        reply: PlacementReply<SubmissionResult>,
    },
    Show {
        id: PlacementId,
        owner: OwnerFilter,
        reply: PlacementReply<PlacementView>,
    },
    List {
        deployment: String,
        filter: PlacementFilter,
        owner: OwnerFilter,
        reply: PlacementReply<Vec<PlacementView>>,
    },
    Withdraw {
        id: PlacementId,
        /// The placement is withdrawn only if it still has this generation. `None` accepts any.
        expected_generation: Option<u64>,
        owner: OwnerFilter,
        reply: PlacementReply<()>,
    },
    ListProcessors {
        deployment: String,
        owner: OwnerFilter,
        reply: PlacementReply<Vec<ProcessorView>>,
    },
    ListRequests {
        deployment: String,
        owner: OwnerFilter,
        reply: PlacementReply<Vec<ResourceRequestView>>,
    },
}

/// Result of an accepted submission.
pub struct SubmissionResult {
    /// False if the same request was submitted before.
    pub is_new: bool,
    pub placement: PlacementView,
}

/// Identifies one placement.
pub struct PlacementId {
    /// Id of the deployment, or of its service.
    pub deployment: String,
    pub uuid: String,
}

/// Selects one page of the placements of a deployment.
pub struct PlacementFilter {
    pub processor: Option<String>,
    pub status: Option<PlacementStatus>,
    /// Lowest sequence number of the page.
    pub after: u64,
    pub limit: usize,
}

/// Reason why a command about placements is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    NotFound(String),
    #[error("deployment {0} has ended: its service was redeployed or ended")]
    DeploymentEnded(String),
    #[error("the service is not ready yet; try again soon")]
    NotSynced,
    #[error("uuid {0} was already used for another request; use a new one")]
    UuidReused(String),
    #[error("the processor is busy: request {0} is in flight or was queued earlier")]
    Busy(String),
    #[error("only a queued request can be withdrawn; the status of this one is {0}")]
    AlreadyStarted(&'static str),
    #[error("the request has changed since it was read; its status is now {0}")]
    Changed(&'static str),
    #[error("only processes of a service can be moved; {0}")]
    NotAServiceProcess(String),
}

/// A placement request as submitted, before its target is resolved.
pub struct SubmittedRequest {
    pub uuid: String,
    pub processor: Target,
    pub destination: Destination,
    pub request_expiry_ms: Option<u64>,
    pub force: bool,
    pub timestamp: Option<Timestamp>,
    pub requested_by: String,
    pub reject_if_busy: bool,
}

/// The processor that a request is about.
pub enum Target {
    /// The full id of a process, or the part after the dot.
    Processor {
        deployment: String,
        id: String,
    },
    Container(AllocationId),
}

/// Owner of the deployments that a caller may use. `None` if the caller may use all.
pub type OwnerFilter = Option<String>;
