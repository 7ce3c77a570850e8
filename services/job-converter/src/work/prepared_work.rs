//! Turns a submission into prepared work, with an id and with serialized rows and entries. The HTTP
//! handlers prepare work, so that the committer only has to store it.

use std::sync::Arc;

use hayward_job_converter_api::submission::{
    JobSubmission, ReservationSubmission, ServiceSubmission, Tasks,
};
use hayward_job_converter_domain::{JobUsage, RunnerCommands, TaskRunners, TaskTable};
use hayward_service::auth::Groups;
use hayward_service::http::problem::Problem;
use hayward_vocabulary::launch::LaunchAccount;
use hayward_vocabulary::{Timestamp, UserName, WorkId, WorkKind};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::config::MAX_LEASED;
use crate::store::work::WorkRow;
use crate::work::published_entries;
use crate::work::retry_policy;
use crate::work::service_deployment::Version;
use crate::work::service_processors;
use crate::work::{Job, PastAllocations, Runner, Work, WorkSpec, empty_slots, kind_name};

/// Submitter, time and trace of a submission.
pub struct Origin {
    pub user: UserName,
    /// Submitter that acted for the user (S11).
    pub actor: Option<String>,
    pub groups: Groups,
    /// Time of the submission.
    pub at: Timestamp,
    pub traceparent: Option<String>,
    pub stop_grace_ms: u64,
    /// Account of the user, if the user has a number.
    pub account: Option<LaunchAccount>,
}

#[cfg(test)]
impl Origin {
    /// Returns a submission of ann, at the beginning of time.
    pub fn sample() -> Self {
        Self {
            user: "ann".parse().expect("a user name"),
            actor: None,
            groups: Groups::NONE,
            at: Timestamp::from_unix_ms(0),
            traceparent: None,
            stop_grace_ms: 0,
            account: None,
        }
    }
}

/// Work ready to be committed.
pub struct PreparedWork {
    pub work: Work,
    pub row: WorkRow,
    pub view: Box<RawValue>,
    pub demand: Vec<(WorkId, Box<RawValue>)>,
    /// Account in the demand.
    pub account: Option<LaunchAccount>,
}

impl Work {
    pub fn new(id: WorkId, uuid: Uuid, origin: &Origin, spec: WorkSpec) -> Self {
        let processors = service_processors::new_processors(&spec);
        let count = processors.as_ref().map_or(1, |it| it.settings().count());
        Self {
            id,
            uuid,
            user: origin.user.clone(),
            actor: origin.actor.clone(),
            groups: origin.groups.clone(),
            submitted_at: origin.at,
            traceparent: origin.traceparent.clone(),
            spec,
            slots: empty_slots(count),
            processors,
            version: Version::FIRST,
            leaving: std::collections::BTreeMap::new(),
            cancelled: false,
            events: 0,
        }
    }
}

/// Creates a job that no process has started yet.
pub fn job_spec(submission: JobSubmission, runner: Runner) -> WorkSpec {
    let attempts = retry_policy::max_attempts(&submission);
    WorkSpec::Job(Box::new(Job {
        max_leased: max_leased(&submission),
        tasks: TaskTable::new(submission.tasks.len(), attempts),
        runners: TaskRunners::default(),
        retry: retry_policy::retry_policy(&submission),
        commands: RunnerCommands::default(),
        submission: Arc::new(submission),
        runner,
        counted_attempts: 0,
        counted_attempts_at_last_end: 0,
        example_failure: None,
        usage: JobUsage::default(),
        past: PastAllocations::default(),
    }))
}

/// Returns the number of tasks per lease response that keeps the response within 4 MiB.
fn max_leased(job: &JobSubmission) -> u32 {
    const MAX_RESPONSE_BYTES: usize = 4 << 20;
    // Upper bound for the fixed fields of a task as JSON. The additions of 4 and 8 bytes below
    // cover quotes and separators.
    const TASK_OVERHEAD_BYTES: usize = 64;
    let argument_bytes = |arguments: &[String]| {
        arguments
            .iter()
            .map(|argument| argument.len() + 4)
            .sum::<usize>()
    };
    let task_argument_bytes = match &job.tasks {
        Tasks::Arguments(vectors) => vectors
            .iter()
            .map(|vector| argument_bytes(vector))
            .max()
            .unwrap_or(0),
        Tasks::Count(_) => 0,
    };
    let variable_bytes: usize = job
        .environment
        .iter()
        .map(|(name, value)| name.len() + value.len() + 8)
        .sum();
    let task_bytes =
        TASK_OVERHEAD_BYTES + argument_bytes(&job.command) + task_argument_bytes + variable_bytes;
    u32::try_from(MAX_RESPONSE_BYTES / task_bytes)
        .unwrap_or(MAX_LEASED)
        .clamp(1, MAX_LEASED)
}

/// Prepares a submission. `text` is the submission as JSON.
pub fn prepare(
    uuid: Uuid,
    origin: &Origin,
    spec: WorkSpec,
    text: String,
) -> Result<PreparedWork, Problem> {
    let kind = match &spec {
        WorkSpec::Job(_) => WorkKind::Job,
        WorkSpec::Service(_) => WorkKind::Service,
        WorkSpec::Reservation(_) => WorkKind::Reservation,
    };
    let work = Work::new(WorkId::from_uuid(kind, uuid), uuid, origin, spec);
    let mut demand = Vec::with_capacity(work.slots.len());
    for slot in 0..work.slots.len() {
        if let Some(mut entry) = published_entries::demand(&work, slot, 0, origin.stop_grace_ms) {
            if let Some(launch) = &mut entry.launch {
                launch.account.clone_from(&origin.account);
            }
            demand.push((entry.work.clone(), to_raw_json(&entry)?));
        }
    }
    let row = WorkRow {
        id: uuid,
        kind: kind_name(kind),
        user: origin.user.to_string(),
        actor: origin.actor.clone(),
        submitted_at_ms: origin.at.unix_ms(),
        submission: text,
        traceparent: origin.traceparent.clone(),
        runner: work.job().map(|job| job.runner.id.to_string()),
        groups: groups_json(&origin.groups)?,
    };
    Ok(PreparedWork {
        view: to_raw_json(&published_entries::view(&work, None))?,
        work,
        row,
        demand,
        account: origin.account.clone(),
    })
}

/// Serializes groups. Returns `None` without groups.
fn groups_json(groups: &Groups) -> Result<Option<String>, Problem> {
    let json = (!groups.is_empty()).then(|| serde_json::to_string(groups));
    json.transpose().map_err(Problem::internal)
}

fn to_raw_json<T: Serialize>(entry: &T) -> Result<Box<RawValue>, Problem> {
    serde_json::value::to_raw_value(entry).map_err(Problem::internal)
}

/// Parses the submission in a row of `work`.
pub fn submission_from_row(
    kind: &str,
    text: &str,
    runner: Option<Runner>,
) -> Result<WorkSpec, serde_json::Error> {
    Ok(match (kind, runner) {
        ("job", Some(runner)) => job_spec(serde_json::from_str::<JobSubmission>(text)?, runner),
        ("service", _) => {
            WorkSpec::Service(Box::new(serde_json::from_str::<ServiceSubmission>(text)?))
        }
        ("reservation", _) => WorkSpec::Reservation(Box::new(serde_json::from_str::<
            ReservationSubmission,
        >(text)?)),
        _ => {
            use serde::de::Error as _;
            return Err(serde_json::Error::custom(
                "a job without the token of its runners",
            ));
        }
    })
}
