//! Refusals of commands to worker pools.

use std::convert::Infallible;

use hayward_rm_scheduler_worker_pools::commands;
use hayward_service::http::problem::{Code, Problem};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    #[error("the pool")]
    NotFound,
    #[error("this Idempotency-Key was used before with another request")]
    KeyReused,
    #[error("there are {0} pools already; stop some that are not needed")]
    TooMany(usize),
    /// `known` are the classes of the policy.
    #[error("the policy has no class {class:?}")]
    NoClass { class: String, known: Vec<String> },
    #[error(
        "events after {after} have expired, only {oldest} to {newest} are stored: connect again"
    )]
    EventsExpired {
        after: u64,
        oldest: u64,
        newest: u64,
    },
    /// The caller no longer owns the pool, or the pool refuses the call in its present state.
    #[error(transparent)]
    Fenced(#[from] commands::Refusal),
}

impl From<Infallible> for PoolRefusal {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<PoolRefusal> for Problem {
    fn from(refusal: PoolRefusal) -> Self {
        use commands::Refusal as FenceRefusal;
        let code = match &refusal {
            PoolRefusal::NotFound => return Self::not_found("the pool"),
            PoolRefusal::Fenced(FenceRefusal::UnknownWorker(id)) => {
                return Self::not_found(format!("worker {id} of the pool"));
            }
            PoolRefusal::NoClass { known, .. } => {
                let detail = format!("must be one of {}", known.join(", "));
                let problem = Self::new(Code::Invalid, refusal.to_string());
                return problem.at("/class", detail);
            }
            PoolRefusal::KeyReused => Code::IdempotencyMismatch,
            PoolRefusal::TooMany(_) => Code::Conflict,
            PoolRefusal::EventsExpired { .. } | PoolRefusal::Fenced(FenceRefusal::Stopped) => {
                Code::Gone
            }
            PoolRefusal::Fenced(FenceRefusal::StaleEpoch { .. }) => Code::StaleEpoch,
            PoolRefusal::Fenced(FenceRefusal::NotConnected) => Code::NotConnected,
            PoolRefusal::Fenced(FenceRefusal::StaleConnection { .. }) => Code::StaleConnection,
            PoolRefusal::Fenced(FenceRefusal::OtherVersion { .. }) => Code::PreconditionFailed,
        };
        Self::new(code, refusal.to_string())
    }
}
