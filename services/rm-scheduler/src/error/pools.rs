//! Refusals of commands to worker pools.

use std::convert::Infallible;

use hayward_rm_scheduler_worker_pools::commands;
use hayward_service::http::problem::{Code, Problem};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    #[error("the pool")]
    Absent,
    #[error("this Idempotency-Key was used before with another request")]
    OtherRequest,
    #[error("there are {0} pools already; stop some that are not needed")]
    TooMany(usize),
    #[error("the policy has no class {named:?}")]
    NoClass { named: String, known: Vec<String> },
    #[error("events after {after} are not kept, only {oldest} to {newest}: connect again")]
    EventsGone {
        after: u64,
        oldest: u64,
        newest: u64,
    },
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
        use commands::Refusal as Fence;
        let code = match &refusal {
            PoolRefusal::Absent => return Self::not_found("the pool"),
            PoolRefusal::Fenced(Fence::UnknownWorker(id)) => {
                return Self::not_found(format!("worker {id} of the pool"));
            }
            PoolRefusal::NoClass { known, .. } => {
                let detail = format!("must be one of {}", known.join(", "));
                let problem = Self::new(Code::Invalid, refusal.to_string());
                return problem.at("/class", detail);
            }
            PoolRefusal::OtherRequest => Code::IdempotencyMismatch,
            PoolRefusal::TooMany(_) => Code::Conflict,
            PoolRefusal::EventsGone { .. } | PoolRefusal::Fenced(Fence::Stopped) => Code::Gone,
            PoolRefusal::Fenced(Fence::StaleEpoch { .. }) => Code::StaleEpoch,
            PoolRefusal::Fenced(Fence::NotConnected) => Code::NotConnected,
            PoolRefusal::Fenced(Fence::StaleConnection { .. }) => Code::StaleConnection,
            PoolRefusal::Fenced(Fence::OtherVersion { .. }) => Code::PreconditionFailed,
        };
        Self::new(code, refusal.to_string())
    }
}
