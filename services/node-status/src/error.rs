//! What node-status says when it will not.

use hayward_service::problem::{Code, Problem};
use hayward_vocabulary::NodeName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("node {0}")]
    NoNode(NodeName),
    #[error("node {0} is {1}; only a lost node can be removed")]
    NotLost(NodeName, &'static str),
    /// Wrong, used, expired or never given: the caller learns no more than that.
    #[error("this secret is not good for this node")]
    BadSecret,
    #[error("this Idempotency-Key was used before with another request")]
    KeyUsedBefore,
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::NoNode(_) => Problem::not_found(refusal),
            Refusal::NotLost(..) => Problem::new(Code::Conflict, refusal.to_string()),
            Refusal::BadSecret => Problem::new(Code::Unauthenticated, refusal.to_string()),
            Refusal::KeyUsedBefore => Problem::new(Code::IdempotencyMismatch, refusal.to_string()),
        }
    }
}
