//! What this service says when it fails.

use hayward_service::problem::{Code, Problem};
use hayward_vocabulary::WorkId;

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this Idempotency-Key was used before with another request")]
    KeyMismatch,
    #[error("{limit} pieces of work are not over yet, which is as many as this service keeps")]
    TooMuchWork { limit: usize },
    #[error("there is no {0} here")]
    NoSuchWork(WorkId),
    #[error("this token is for the tasks of another job")]
    NotItsRunner,
    #[error("{job} has {total} tasks, numbered from 0; there is no task {task}")]
    NoSuchTask { job: WorkId, task: u64, total: u64 },
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::NoSuchWork(id) => return Self::not_found(id),
            Refusal::KeyMismatch => Code::IdempotencyMismatch,
            Refusal::TooMuchWork { .. } => Code::TooManyRequests,
            Refusal::NotItsRunner => Code::Forbidden,
            Refusal::NoSuchTask { .. } => Code::Invalid,
        };
        Self::new(code, refusal.to_string())
    }
}
