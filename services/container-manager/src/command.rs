//! The commands of the ledger, and their answers.

use hayward_container_manager_api::Report;
use hayward_container_manager_placement::Destination;
use hayward_publication::invariants::Findings;
use hayward_publication::{Batch, Moment, Reply, Update};
use hayward_rm_scheduler_api::{AllocationEntry, ClosedEntry, ProcessorEntry};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp};

use crate::ledger::Ledger;
use crate::model::Rows;

/// Someone asked, or news came.
pub enum Command {
    Allocations {
        update: Update<AllocationEntry>,
        reply: Reply<()>,
    },
    Processors(Update<ProcessorEntry>, Reply<()>),
    Closed(Update<ClosedEntry>, Reply<()>),
    /// How the invariants stand.
    Invariants(Reply<Findings>),
    /// Somebody asked about placements, and is answered by what they asked.
    Placements(Box<Act>),
    Report {
        node: NodeName,
        answers: Option<u64>,
        report: Report,
        reply: Reply<Result<(), ForeignContainers>>,
    },
}

/// At these places something names a container of another node.
#[derive(Debug)]
pub struct ForeignContainers(pub Vec<usize>);

impl ForeignContainers {
    pub fn if_any(places: Vec<usize>) -> Result<(), Self> {
        if places.is_empty() {
            return Ok(());
        }
        Err(Self(places))
    }
}

/// What somebody asks of the placements, with its reply.
pub type Act = dyn FnOnce(&mut Ledger, &Moment, &mut Batch<Rows>) + Send;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    NotFound(String),
    #[error("deployment {0} is over: its service was deployed again or ended")]
    DeploymentEnded(String),
    #[error("the neighbours have not been heard yet; ask again soon")]
    NotSynced,
    #[error("uuid {0} was used before for another order; make a new one")]
    UuidReused(String),
    #[error("order {0} of this processor is in flight or waits before it")]
    Busy(String),
    #[error("it is {0} already; only what still waits can be withdrawn")]
    AlreadyStarted(&'static str),
    #[error("it has changed since it was read; it is {0} now")]
    Changed(&'static str),
    #[error("only processes of a service are placed by order; {0}")]
    NotOfAService(String),
}

/// An order as it was posted, before anybody knows whether there is such a thing.
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

pub enum Target {
    /// Within a deployment; the whole id, or what follows the dot.
    Processor {
        deployment: String,
        id: String,
    },
    Container(AllocationId),
}

/// Whose deployments a caller may see: one user's own, or with `None` all.
pub type OwnerFilter = Option<String>;
