//! What can go wrong between a command and its commit.

use std::fmt;

use hayward_service::http::problem::{Code, Problem};
use uuid::Uuid;

/// Somebody has seen more of a history than the database holds (R9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WentBack {
    /// Of which history. Another one is another matter.
    pub lineage: Uuid,
    /// Who has seen what.
    pub evidence: String,
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.evidence)
    }
}

/// How every sentence about it begins, for whoever reads a status.
pub const WENT_BACK: &str = "the database went back in time";

/// What a problem of this kind says beside its detail: for followers.
const LINEAGE: &str = "lineage";
const EVIDENCE: &str = "evidence";

impl WentBack {
    /// What another service answered, where it answered this.
    pub fn from_problem(problem: &Problem) -> Option<Self> {
        let text = |name| problem.extension(name)?.as_str();
        let lineage = Uuid::try_parse(text(LINEAGE)?).ok()?;
        let evidence = text(EVIDENCE)?.to_owned();
        (problem.code == Code::WentBack).then_some(Self { lineage, evidence })
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// Another replica leads, or nobody does yet.
    #[error("this replica does not lead at the moment")]
    Standby,
    /// The commit failed or its outcome is unknown: the caller asks again with the same key (R5).
    #[error("the change could not be committed; ask again")]
    Unavailable,
    /// More commands wait than the queue may hold (I25).
    #[error("too many changes wait to be committed")]
    Busy,
    /// The caller wanted it at another revision than the service is at (A10).
    #[error("asked for at revision {asked}, and the service is at {now}; look again")]
    Moved { asked: u64, now: u64 },
    /// What the caller changes is not what it saw (A5).
    #[error("it was changed since it was read; look again")]
    Changed,
    /// What the caller said of a revision is none (A10).
    #[error("{}", .0.detail)]
    Unreadable(Box<Problem>),
    /// Asked to try what cannot be tried (A10).
    #[error("this has no dry run; nothing was done")]
    NoDryRun,
    /// The database answers from before something that was already seen (R9): nothing is written
    /// until an operator has looked.
    #[error("{WENT_BACK}, and nothing is written: {0}")]
    WentBack(WentBack),
}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        let text = error.to_string();
        match error {
            CommitError::Standby => Problem::new(Code::Standby, text),
            CommitError::Unavailable => Problem::new(Code::Unavailable, text),
            CommitError::Busy => Problem::new(Code::TooManyRequests, text),
            CommitError::Moved { now, .. } => {
                Problem::new(Code::RevisionMoved, text).with("revision", now)
            }
            CommitError::Changed => Problem::new(Code::PreconditionFailed, text),
            CommitError::Unreadable(problem) => *problem,
            CommitError::NoDryRun => {
                Problem::new(Code::Invalid, text).at("/query/dry_run", "leave it out to do it")
            }
            CommitError::WentBack(found) => Problem::new(Code::WentBack, text)
                .with(LINEAGE, found.lineage.to_string())
                .with(EVIDENCE, found.evidence),
        }
    }
}
