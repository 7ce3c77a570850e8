//! What blocklist says when it will not.

use hayward_service::problem::Problem;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("a block of {0}")]
    NoItem(String),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::NoItem(_) => Problem::not_found(refusal),
        }
    }
}
