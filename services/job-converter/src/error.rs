//! Refusals of commands, as problem documents.

use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{UserName, WorkId};

/// Reason why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this Idempotency-Key was used before with another request")]
    KeyMismatch,
    #[error("{limit} pieces of work are not over yet, which is as many as this service keeps")]
    TooMuchWork { limit: usize },
    #[error("there is no {0} here")]
    NoSuchWork(WorkId),
    #[error("{0} is over; submit another service")]
    Over(WorkId),
    #[error("it was changed meanwhile, and is at generation {0} now")]
    ChangedMeanwhile(u32),
    #[error("{0} of a service cannot be changed")]
    Fixed(&'static str),
    #[error("there is no orchestrator {0} here: an operator makes one")]
    NoSuchOrchestrator(UserName),
    #[error("there are {limit} orchestrators, which is as many as this service keeps")]
    TooManyOrchestrators { limit: usize },
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
            Refusal::NoSuchOrchestrator(_) => Code::NotFound,
            Refusal::Over(_) | Refusal::TooManyOrchestrators { .. } => Code::Conflict,
            Refusal::ChangedMeanwhile(_) => Code::PreconditionFailed,
            Refusal::Fixed(field) => {
                let detail = "leave it as it is, or submit another service";
                return Self::new(Code::Invalid, refusal.to_string())
                    .at(format!("/{field}"), detail);
            }
            Refusal::NotItsRunner => Code::Forbidden,
            Refusal::NoSuchTask { .. } => Code::Invalid,
        };
        Self::new(code, refusal.to_string())
    }
}
