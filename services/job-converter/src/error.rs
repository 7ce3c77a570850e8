//! Refusals of commands, returned as problem documents.

use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::{UserName, WorkId};

/// Reason why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this Idempotency-Key was used before with another request")]
    KeyMismatch,
    #[error("{limit} pieces of work are open, which is the limit of this service")]
    TooMuchWork { limit: usize },
    #[error("{0} does not exist")]
    NoSuchWork(WorkId),
    #[error("{0} has ended; submit another service")]
    Ended(WorkId),
    #[error("it was changed in the meantime and is now at generation {0}")]
    ChangedMeanwhile(u32),
    #[error("{0} of a service cannot be changed")]
    FixedField(&'static str),
    #[error("unknown orchestrator {0}; an operator can create it")]
    NoSuchOrchestrator(UserName),
    #[error("there are {limit} orchestrators, which is the limit of this service")]
    TooManyOrchestrators { limit: usize },
    #[error("{0} has no number")]
    NoSuchAccount(UserName),
    #[error("{user} has live work, such as {work}: cancel it, or wait for its end")]
    AccountInUse { user: UserName, work: String },
    #[error("the token is for the tasks of another job")]
    WrongRunner,
    #[error("there is no task {task}")]
    NoTaskWithNumber { task: u64, total: u64 },
    #[error("{job} has {total} tasks, numbered from 0; there is no task {task}")]
    NoSuchTask { job: WorkId, task: u64, total: u64 },
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::NoSuchWork(id) => return Self::not_found(id),
            Refusal::KeyMismatch => Code::IdempotencyMismatch,
            Refusal::TooMuchWork { .. } => Code::TooManyRequests,
            Refusal::NoSuchOrchestrator(_) | Refusal::NoSuchAccount(_) => Code::NotFound,
            Refusal::Ended(_)
            | Refusal::TooManyOrchestrators { .. }
            | Refusal::AccountInUse { .. } => Code::Conflict,
            Refusal::ChangedMeanwhile(_) => Code::PreconditionFailed,
            Refusal::FixedField(field) => {
                let detail = "leave it as it is, or submit another service";
                return Self::new(Code::Invalid, refusal.to_string())
                    .at(format!("/{field}"), detail);
            }
            Refusal::NoTaskWithNumber { total, .. } => {
                let last = total.saturating_sub(1);
                let detail = format!("the job has {total} tasks: name numbers from 0 to {last}");
                return Self::new(Code::Invalid, refusal.to_string()).at("/tasks", detail);
            }
            Refusal::WrongRunner => Code::Forbidden,
            Refusal::NoSuchTask { .. } => Code::Invalid,
        };
        Self::new(code, refusal.to_string())
    }
}
