//! Refusals of policy changes and of commands to worker pools, as HTTP problems.

mod worker_pools;

use hayward_service::http::problem::{Code, Problem};

use hayward_rm_scheduler_policy::Fault;

pub use worker_pools::PoolRefusal;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// All faults of a policy document at once.
    #[error("the policy has {} fault(s); nothing was changed", .0.len())]
    BadPolicy(Vec<Fault>),
    /// The change is based on another generation than the policy in force.
    #[error(
        "the policy is at generation {current}, not {requested}; \
         read it again and repeat your change"
    )]
    Stale { requested: u64, current: u64 },
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::BadPolicy(_) => Code::Invalid,
            Refusal::Stale { .. } => Code::PreconditionFailed,
        };
        let problem = Problem::new(code, refusal.to_string());
        let Refusal::BadPolicy(faults) = refusal else {
            return problem;
        };
        faults.into_iter().fold(problem, |problem, fault| {
            problem.at(fault.pointer, fault.detail)
        })
    }
}
