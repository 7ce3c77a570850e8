//! Reasons for which the ledger refuses a command.

use hayward_blocklist_api::BlockEntry;
use hayward_blocklist_domain::BrakeReason;
use hayward_service::http::problem::{Code, FieldFault, Problem};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the blocklist is disabled by the setting `enabled`; enable it and try again")]
    Disabled,
    #[error("a block of {0}")]
    NotBlocked(String),
    #[error(
        "{} is already blocked until {}, because: {}; set allow_merge to merge with that block",
        .0.key(),
        .0.end.map_or_else(|| "it is removed".to_owned(), |end| end.to_string()),
        .0.cause
    )]
    AlreadyBlocked(Box<BlockEntry>),
    #[error("{0} changed since it was read")]
    ItemChanged(String),
    #[error("unknown node {name:?}")]
    UnknownNode {
        /// Index of the item in its batch.
        index: usize,
        name: String,
    },
    #[error("{reason}")]
    Brake {
        /// Index of the item in its batch.
        index: usize,
        reason: BrakeReason,
    },
    #[error("invalid strategy")]
    InvalidStrategy(Vec<FieldFault>),
    /// The strategy would block most of a pool.
    #[error("{0}")]
    StrategyTooBroad(String),
    #[error(
        "{count} of at most {max} items are in memory; wait until some items end, or remove some"
    )]
    TooManyItems { count: usize, max: usize },
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::Disabled => Self::new(Code::BlocklistDisabled, text),
            Refusal::AlreadyBlocked(_) | Refusal::TooManyItems { .. } => {
                Self::new(Code::Conflict, text)
            }
            Refusal::NotBlocked(_) => Self::not_found(text),
            Refusal::ItemChanged(_) => Self::new(Code::PreconditionFailed, text),
            Refusal::UnknownNode { index, .. } => {
                let detail = "must be a node of the fleet; `hayward nodes` lists them";
                Self::new(Code::Invalid, text).at(format!("/items/{index}/identifier"), detail)
            }
            Refusal::Brake { index, .. } => {
                let detail = "a brake prevents the automatic block; an operator may block the node";
                Self::new(Code::Invalid, text).at(format!("/items/{index}"), detail)
            }
            Refusal::InvalidStrategy(faults) => {
                let mut problem = Self::new(Code::Invalid, text);
                problem.errors = faults;
                problem
            }
            Refusal::StrategyTooBroad(_) => {
                Self::new(Code::Invalid, text).at("/parameters", "must match fewer nodes")
            }
        }
    }
}

/// Removes the prefix `/items/0` of pointers, for a request body that is the item itself.
pub fn strip_batch_pointers(mut problem: Problem) -> Problem {
    for fault in &mut problem.errors {
        if let Some(pointer) = fault.pointer.strip_prefix("/items/0") {
            fault.pointer = pointer.to_owned();
        }
    }
    problem
}
