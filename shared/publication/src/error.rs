//! What can go wrong between a command and its commit.

use hayward_service::problem::{Code, Problem};

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
    /// The database answers from before something that was already seen (R9): nothing is written
    /// until an operator has looked.
    #[error("the database went back in time: {0}")]
    WentBack(String),
}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        let code = match error {
            CommitError::Standby => Code::Standby,
            CommitError::Unavailable | CommitError::WentBack(_) => Code::Unavailable,
            CommitError::Busy => Code::TooManyRequests,
        };
        Problem::new(code, error.to_string())
    }
}
