//! Commands of the committer: requests of callers and updates of followed publications.

use std::sync::Arc;

use hayward_job_converter_api::signals::SentSignal;
use hayward_job_converter_api::submission::{JobSubmission, ServiceSubmission};
use hayward_job_converter_api::tasks::{LeaseRequest, RunTerms};
use hayward_job_converter_application_protocol::ids::AppId;
use hayward_job_converter_domain::{DelayedTask, Leased, NumberedCommand, RangeSet};
use hayward_publication::Update;
use hayward_publication::committer::Reply;
use hayward_publication::invariants::Findings;
use hayward_rm_scheduler_api::{AllocationEntry, VerdictEntry};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName, WorkId};
use uuid::Uuid;

use crate::applications::ApplicationCommand;
use crate::error::Refusal;
use crate::orchestrators::commands::OrchestratorCommand;
use crate::work::prepared_work::PreparedWork;
use crate::work::service_deployment::Version;
use crate::work::{StopSpeed, TaskCommand};

/// A request of a caller, or an update of a followed publication.
pub enum Command {
    Submit(Box<SubmitWork>, Reply<Result<SubmissionResponse, Refusal>>),
    ChangeService(
        Box<ChangeService>,
        Reply<Result<ServiceChangeResult, Refusal>>,
    ),
    Cancel(CancelWork, Reply<Result<(), Refusal>>),
    CancelTasks(CancelTasks, Reply<Result<CancelledTasks, Refusal>>),
    SignalTasks(SignalTasks, Reply<Result<u64, Refusal>>),
    Lease(Box<LeaseTasks>, Reply<Result<LeaseGrant, Refusal>>),
    RunningTasks(RunningTasksQuery, Reply<Vec<RunningRun>>),
    /// Delayed tasks of a job, with times in milliseconds from now.
    DelayedTasks(RunningTasksQuery, Reply<Vec<DelayedTask>>),
    RunnerCommands(
        RunnerCommandsQuery,
        Reply<Result<Vec<NumberedCommand<TaskCommand>>, Refusal>>,
    ),
    AllocationUpdate(Update<AllocationEntry>, Reply<()>),
    VerdictUpdate(Update<VerdictEntry>, Reply<()>),
    Orchestrator(Box<OrchestratorCommand>),
    ForgetAccount(UserName, Reply<Result<(), Refusal>>),
    CheckInvariants(Reply<Findings>),
    /// Changes one application. The closure sends its own response.
    ChangeApplication(AppId, ApplicationCommand),
    /// Reads applications, also within a dry run (A10).
    ReadApplications(ApplicationCommand),
}

/// An idempotency key and its request, each as the first half of a SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKey {
    pub key: Uuid,
    pub request: Uuid,
}

/// Submission of one or several pieces of work.
pub struct SubmitWork {
    pub request_key: RequestKey,
    /// Prepared work, or the faults of an item that is not accepted, in request order.
    pub items: Vec<Result<Box<PreparedWork>, String>>,
    /// Whether the response has one result per item.
    pub is_bulk: bool,
    /// Whether the request is only evaluated, and no work is accepted (A10).
    pub is_dry_run: bool,
}

/// Response to a submission. A request with the same idempotency key gets it again.
pub struct SubmissionResponse {
    /// Body as JSON.
    pub body: Arc<str>,
    /// Whether the key was used before, and this is the stored response.
    pub replayed: bool,
}

/// Work that a caller changes.
pub struct ChangeTarget {
    pub id: WorkId,
    /// Owner that the work must have. `None` allows any owner, for operators.
    pub user: Option<String>,
    /// Caller, shown in the timeline.
    pub caller: String,
}

/// Cancellation of work.
pub struct CancelWork {
    pub target: ChangeTarget,
    pub speed: StopSpeed,
}

/// Cancellation of single tasks of a job.
pub struct CancelTasks {
    pub target: ChangeTarget,
    pub tasks: RangeSet,
    pub speed: StopSpeed,
}

/// A signal to running tasks of a job.
pub struct SignalTasks {
    pub target: ChangeTarget,
    /// `None` for all running tasks.
    pub task: Option<u64>,
    pub signal: SentSignal,
}

/// Numbers of tasks that a cancellation changed, and of those that had ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct CancelledTasks {
    pub cancelled: u64,
    pub stopping: u64,
    pub ended: u64,
}

/// Request of a runner for the commands after a number.
pub struct RunnerCommandsQuery {
    pub job: WorkId,
    /// Work id in the scope of the runner's token.
    pub runner: WorkId,
    pub allocation: AllocationId,
    pub after: u64,
}

/// Change of a running service.
pub struct ChangeService {
    pub id: WorkId,
    /// Owner that the service must have.
    pub user: String,
    /// Generation that the change is based on.
    pub base_generation: u32,
    pub service: Box<ServiceSubmission>,
    /// `service` as JSON.
    pub text: String,
}

/// Result of a change of a service.
pub struct ServiceChangeResult {
    pub version: Version,
    /// Whether the change differs from the current service.
    pub changed: bool,
    pub redeployed: bool,
}

impl ServiceChangeResult {
    pub fn unchanged(version: Version) -> Self {
        Self {
            version,
            changed: false,
            redeployed: false,
        }
    }
}

/// A request of a task runner: reports of finished tasks, and a request for more tasks.
pub struct LeaseTasks {
    pub job: WorkId,
    /// Work id in the scope of the runner's token.
    pub runner: WorkId,
    pub request: LeaseRequest,
    /// Whether the process should end if it runs nothing and nothing of the job waits.
    pub ends_idle_runner: bool,
}

/// Response to a task runner.
pub struct LeaseGrant {
    pub leased: Vec<Leased>,
    /// Submission of the job. `None` if the job has ended.
    pub job: Option<Arc<JobSubmission>>,
    /// Terms of the job, for a runner that wants them.
    pub terms: Option<Box<RunTerms>>,
    /// Whether the runner should end, because it gets no more tasks.
    pub done: bool,
}

impl LeaseGrant {
    pub const JOB_ENDED: Self = Self {
        leased: Vec::new(),
        job: None,
        terms: None,
        done: true,
    };
}

/// Request for the running or the delayed tasks of a job, by number.
#[derive(Debug, Clone, Copy)]
pub struct RunningTasksQuery {
    pub job: Uuid,
    pub first_task: u64,
    pub limit: usize,
}

/// A task that runs, with its process.
pub struct RunningRun {
    pub task: u64,
    pub attempt: u32,
    /// `None` if the process has not been observed yet.
    pub node: Option<NodeName>,
    pub allocation: AllocationId,
    pub started_at: Timestamp,
    /// Milliseconds since the start.
    pub run_ms: u64,
}
