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

use crate::applications::Act;
use crate::error::Refusal;
use crate::model::Once;
use crate::orchestrators::commands::Act as OrchestratorAct;
use crate::work::intake::Prepared;
use crate::work::version::Version;

/// Someone asked, or news came.
pub enum Command {
    Submit(Box<Submit>, Reply<Result<Accepted, Refusal>>),
    Amend(Box<Amend>, Reply<Result<Amended, Refusal>>),
    Cancel(Cancel, Reply<Result<(), Refusal>>),
    Lease(Box<Lease>, Reply<Result<Grant, Refusal>>),
    Allocations(Update<AllocationEntry>, Reply<()>),
    Verdicts(Update<VerdictEntry>, Reply<()>),
    Orchestrator(Box<OrchestratorAct>),
    /// How the invariants stand.
    Invariants(Reply<Findings>),
    /// Somebody changes an application, and is answered by what they asked.
    Applications(AppId, Act),
    /// Somebody looks at applications, also for the sake of a dry run (A10).
    Looked(Act),
}

/// One request to accept work.
pub struct Submit {
    pub once: Once,
    /// What was accepted so far, or why it was not, in order.
    pub items: Vec<Result<Box<Prepared>, String>>,
    /// Answer with one result per item.
    pub bulk: bool,
    /// Do nothing of it (A10).
    pub dry_run: bool,
}

/// The answer as JSON; given again to whoever repeats the request.
pub struct Accepted {
    pub answer: Arc<str>,
    pub replayed: bool,
}

pub struct Cancel {
    pub id: WorkId,
    /// Whose work it must be; anybody's for an operator.
    pub user: Option<String>,
    /// For the timeline.
    pub by: String,
}

pub struct Amend {
    pub id: WorkId,
    /// Whose service it must be.
    pub user: String,
    /// The generation it was made from.
    pub from: u32,
    pub service: Box<ServiceSubmission>,
    /// The same as JSON.
    pub text: String,
}

pub struct Amended {
    pub version: Version,
    /// False where it was like that already.
    pub changed: bool,
    pub redeployed: bool,
}

pub struct Lease {
    pub job: WorkId,
    /// The work id in the caller's token.
    pub runner: WorkId,
    pub request: LeaseRequest,
}

/// What a runner is told.
pub struct Grant {
    pub leased: Vec<Leased>,
    /// Absent when the job is over.
    pub job: Option<Arc<JobSubmission>>,
    pub done: bool,
}

impl Grant {
    pub const OVER: Self = Self {
        leased: Vec::new(),
        job: None,
        done: true,
    };
}
