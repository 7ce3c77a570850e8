//! Turns a submission into prepared work, with its number, and its rows and entries serialized.
//! This happens in the handler, so the committer only stores it.

use std::sync::Arc;

use hayward_job_converter_api::submission::{
    JobSubmission, ReservationSubmission, ServiceSubmission, Tasks,
};
use hayward_job_converter_domain::TaskTable;
use hayward_service::auth::Groups;
use hayward_service::http::problem::Problem;
use hayward_vocabulary::{Timestamp, UserName, WorkId, WorkKind};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::config::MAX_LEASED;
use crate::store::work::WorkRow;
use crate::work::processors;
use crate::work::projections;
use crate::work::version::Version;
use crate::work::{DEFAULT_ATTEMPTS, Job, PastAllocations, Runner, What, Work, kind_name, slots};

/// Submitter, time and trace of a submission.
pub struct Origin {
    pub user: UserName,
    /// Submitter that acted for the user (S11).
    pub actor: Option<String>,
    pub groups: Groups,
    pub at: Timestamp,
    pub traceparent: Option<String>,
    pub stop_grace_ms: u64,
}

/// Work ready to be committed.
pub struct Prepared {
    pub work: Work,
    pub row: WorkRow,
    pub view: Box<RawValue>,
    pub demand: Vec<(WorkId, Box<RawValue>)>,
}

impl Work {
    pub fn new(id: WorkId, uuid: Uuid, origin: &Origin, what: What) -> Self {
        let processors = processors::from_work(&what);
        let count = processors.as_ref().map_or(1, |it| it.terms().count());
        Self {
            id,
            uuid,
            user: origin.user.clone(),
            actor: origin.actor.clone(),
            groups: origin.groups.clone(),
            submitted_at: origin.at,
            traceparent: origin.traceparent.clone(),
            what,
            slots: slots(count),
            processors,
            version: Version::FIRST,
            leaving: std::collections::BTreeMap::new(),
            cancelled: false,
            events: 0,
        }
    }
}

pub fn job_of(submission: JobSubmission, runner: Runner) -> What {
    let attempts = submission.max_attempts.unwrap_or(DEFAULT_ATTEMPTS);
    What::Job(Box::new(Job {
        most_leased: most_leased(&submission),
        tasks: TaskTable::new(submission.tasks.len(), attempts),
        submission: Arc::new(submission),
        runner,
        counted: 0,
        counted_at_last_end: 0,
        past: PastAllocations::default(),
    }))
}

/// Returns the number of tasks per lease response that keeps the response within 4 MiB.
fn most_leased(job: &JobSubmission) -> u32 {
    const ANSWER: usize = 4 << 20;
    const FRAME: usize = 64;
    let words = |words: &[String]| words.iter().map(|word| word.len() + 4).sum::<usize>();
    let own = match &job.tasks {
        Tasks::Arguments(vectors) => vectors
            .iter()
            .map(|vector| words(vector))
            .max()
            .unwrap_or(0),
        Tasks::Count(_) => 0,
    };
    let variables: usize = job
        .environment
        .iter()
        .map(|(name, value)| name.len() + value.len() + 8)
        .sum();
    let task = FRAME + words(&job.command) + own + variables;
    u32::try_from(ANSWER / task)
        .unwrap_or(MAX_LEASED)
        .clamp(1, MAX_LEASED)
}

/// Prepares a submission. `text` is the submission as JSON.
pub fn prepare(uuid: Uuid, origin: &Origin, what: What, text: String) -> Result<Prepared, Problem> {
    let kind = match &what {
        What::Job(_) => WorkKind::Job,
        What::Service(_) => WorkKind::Service,
        What::Reservation(_) => WorkKind::Reservation,
    };
    let work = Work::new(WorkId::fresh(kind, uuid), uuid, origin, what);
    let mut demand = Vec::with_capacity(work.slots.len());
    for slot in 0..work.slots.len() {
        if let Some(entry) = projections::demand(&work, slot, 0, origin.stop_grace_ms) {
            demand.push((entry.work.clone(), raw(&entry)?));
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
        groups: written(&origin.groups)?,
    };
    Ok(Prepared {
        view: raw(&projections::view(&work, None))?,
        work,
        row,
        demand,
    })
}

/// Serializes groups. Returns `None` without groups.
fn written(groups: &Groups) -> Result<Option<String>, Problem> {
    let some = (!groups.is_empty()).then(|| serde_json::to_string(groups));
    some.transpose().map_err(Problem::internal)
}

fn raw<T: Serialize>(entry: &T) -> Result<Box<RawValue>, Problem> {
    serde_json::value::to_raw_value(entry).map_err(Problem::internal)
}

/// Parses the submission in a row of `work`.
pub fn submission_from_row(
    kind: &str,
    text: &str,
    runner: Option<Runner>,
) -> Result<What, serde_json::Error> {
    Ok(match (kind, runner) {
        ("job", Some(runner)) => job_of(serde_json::from_str::<JobSubmission>(text)?, runner),
        ("service", _) => What::Service(Box::new(serde_json::from_str::<ServiceSubmission>(text)?)),
        ("reservation", _) => What::Reservation(Box::new(serde_json::from_str::<
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
