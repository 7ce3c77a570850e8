//! Why a command is not committed.

use std::fmt;

use hayward_service::http::problem::{Code, Problem};
use uuid::Uuid;

/// Evidence that the database went back in time, for example after a restore of an old backup: a
/// reader has seen more of the history than the database holds (R9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WentBack {
    /// The history of the evidence.
    pub lineage: Uuid,
    /// The evidence, and the reader that reported it.
    pub evidence: String,
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.evidence)
    }
}

/// Start of every message about a database that went back in time.
pub const WENT_BACK: &str = "the database went back in time";

/// Names of the extension members of the problem, for followers.
const LINEAGE: &str = "lineage";
const EVIDENCE: &str = "evidence";

impl WentBack {
    /// Returns the evidence in a problem of another service. Returns `None` for other problems.
    pub fn from_problem(problem: &Problem) -> Option<Self> {
        let text = |name| problem.extension(name)?.as_str();
        let lineage = Uuid::try_parse(text(LINEAGE)?).ok()?;
        let evidence = text(EVIDENCE)?.to_owned();
        (problem.code == Code::WentBack).then_some(Self { lineage, evidence })
    }
}

/// Why a command was refused or not committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// Another replica leads, or no replica leads yet.
    #[error("this replica does not lead at the moment")]
    Standby,
    /// The commit failed or its outcome is unknown: retry with the same key (R5).
    #[error("the change could not be committed; send the request again")]
    Unavailable,
    /// The queue of commands is full (I25).
    #[error("too many changes wait to be committed")]
    Busy,
    /// The service is not at the revision of `If-Revision` (A10).
    #[error(
        "the request is for revision {expected}, and the service is at {current}; read the \
         current state first"
    )]
    Moved { expected: u64, current: u64 },
    /// The entry has changed since the caller read it (A5).
    #[error("the entry has changed since it was read; read it again")]
    Changed,
    /// `If-Revision` is invalid (A10).
    #[error("{}", .0.detail)]
    InvalidCondition(Box<Problem>),
    /// The command has no dry run (A10).
    #[error("this change has no dry run; nothing was changed")]
    NoDryRun,
    /// The database is older than what was seen before. The service writes nothing until an
    /// operator decides (R9).
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
            CommitError::Moved { current, .. } => {
                Problem::new(Code::RevisionMoved, text).with("revision", current)
            }
            CommitError::Changed => Problem::new(Code::PreconditionFailed, text),
            CommitError::InvalidCondition(problem) => *problem,
            CommitError::NoDryRun => {
                let detail = "leave it out to make the change";
                Problem::new(Code::Invalid, text).at("/query/dry_run", detail)
            }
            CommitError::WentBack(found) => Problem::new(Code::WentBack, text)
                .with(LINEAGE, found.lineage.to_string())
                .with(EVIDENCE, found.evidence),
        }
    }
}
