//! Commands of the committer: requests of callers and updates of followed publications.

use std::sync::Arc;

use hayward_job_converter_api::submission::{JobSubmission, ServiceSubmission};
use hayward_job_converter_api::tasks::LeaseRequest;
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_job_converter_domain::Leased;
use hayward_publication::Update;
use hayward_publication::committer::Reply;
use hayward_publication::invariants::Findings;
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry};
use hayward_vocabulary::WorkId;

use crate::applications::ApplicationCommand;
use crate::error::Refusal;
use crate::model::RequestKey;
use crate::orchestrators::commands::OrchestratorCommand;
use crate::work::intake::Prepared;
use crate::work::service_deployment::Version;

/// A request of a caller, or an update of a followed publication.
pub enum Command {
    Submit(Box<Submit>, Reply<Result<Accepted, Refusal>>),
    Amend(Box<Amend>, Reply<Result<Amended, Refusal>>),
    Cancel(Cancel, Reply<Result<(), Refusal>>),
    Lease(Box<Lease>, Reply<Result<Grant, Refusal>>),
    Allocations(Update<AllocationEntry>, Reply<()>),
    Verdicts(Update<VerdictEntry>, Reply<()>),
    Orchestrator(Box<OrchestratorCommand>),
    /// Evaluates the invariants.
    Invariants(Reply<Findings>),
    /// Changes one application. The closure sends its own response.
    Applications(AppId, ApplicationCommand),
    /// Reads applications, also within a dry run (A10).
    ReadApplications(ApplicationCommand),
}

/// Accepts work.
pub struct Submit {
    pub request_key: RequestKey,
    /// Prepared work, or the faults of an item that is not accepted, in request order.
    pub items: Vec<Result<Box<Prepared>, String>>,
    /// Whether the response has one result per item.
    pub bulk: bool,
    /// Whether the request is only evaluated and no work is accepted (A10).
    pub dry_run: bool,
}

/// Response as JSON. A request with the same key gets it again.
pub struct Accepted {
    pub response: Arc<str>,
    pub replayed: bool,
}

/// Cancels work.
pub struct Cancel {
    pub id: WorkId,
    /// Owner that the work must have. `None` allows any owner, for operators.
    pub user: Option<String>,
    /// Caller, shown in the timeline.
    pub caller: String,
}

/// Changes a service.
pub struct Amend {
    pub id: WorkId,
    /// Owner that the service must have.
    pub user: String,
    /// Generation that the change is based on.
    pub base_generation: u32,
    pub service: Box<ServiceSubmission>,
    /// `service` as JSON.
    pub text: String,
}

/// Result of a change.
pub struct Amended {
    pub version: Version,
    /// Whether the change differs from the current service.
    pub changed: bool,
    pub redeployed: bool,
}

impl Amended {
    pub fn unchanged(version: Version) -> Self {
        Self {
            version,
            changed: false,
            redeployed: false,
        }
    }
}

/// Reports of a runner, and its request for tasks.
pub struct Lease {
    pub job: WorkId,
    /// Work id in the scope of the runner's token.
    pub runner: WorkId,
    pub request: LeaseRequest,
}

/// Response to a runner.
pub struct Grant {
    pub leased: Vec<Leased>,
    /// Submission of the job. `None` if the job has ended.
    pub job: Option<Arc<JobSubmission>>,
    /// Whether the runner should end, because it gets no more tasks.
    pub done: bool,
}

impl Grant {
    pub const JOB_ENDED: Self = Self {
        leased: Vec::new(),
        job: None,
        done: true,
    };
}
