//! Reasons for which the ledger refuses a command.

use hayward_blocklist_api::BlockEntry;
use hayward_blocklist_domain::BrakeReason;
use hayward_service::http::problem::{Code, FieldFault, Problem};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the blocklist is disabled by the setting `enabled`; enable it and try again")]
    Disabled,
    #[error("a block of {0}")]
    NoItem(String),
    #[error(
        "{} is already blocked until {}, because: {}; set allow_merge to merge with that block",
        .0.key(),
        .0.end.map_or_else(|| "it is removed".to_owned(), |end| end.to_string()),
        .0.cause
    )]
    Exists(Box<BlockEntry>),
    #[error("{0} changed since it was read")]
    Changed(String),
    /// Index of the item in its batch, name of the node, and number of known nodes.
    #[error("unknown node {1:?}; {2} nodes are known, forgotten ones included")]
    UnknownNode(usize, String, usize),
    #[error("{1}")]
    Brake(usize, BrakeReason),
    #[error("invalid strategy")]
    Strategy(Vec<FieldFault>),
    #[error("{0}")]
    TooBroad(String),
    /// Items in memory, and the maximum.
    #[error("{0} of at most {1} items are in memory; wait until some end, or remove some")]
    Full(usize, usize),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::Disabled => Self::new(Code::BlocklistDisabled, text),
            Refusal::Exists(_) | Refusal::Full(..) => Self::new(Code::Conflict, text),
            Refusal::NoItem(_) => Self::not_found(text),
            Refusal::Changed(_) => Self::new(Code::PreconditionFailed, text),
            Refusal::UnknownNode(number, ..) => {
                let detail = "name a node of the fleet; `hayward nodes` lists them";
                Self::new(Code::Invalid, text).at(format!("/items/{number}/identifier"), detail)
            }
            Refusal::Brake(number, _) => {
                let detail = "automatic blocks obey the brakes; an operator may block the node";
                Self::new(Code::Invalid, text).at(format!("/items/{number}"), detail)
            }
            Refusal::Strategy(faults) => {
                let mut problem = Self::new(Code::Invalid, text);
                problem.errors = faults;
                problem
            }
            Refusal::TooBroad(_) => {
                Self::new(Code::Invalid, text).at("/parameters", "make the rule narrower")
            }
        }
    }
}

/// Adapts the pointers of a batch of one item to a body that is the item itself.
pub fn for_single_item(mut problem: Problem) -> Problem {
    for fault in &mut problem.errors {
        if let Some(rest) = fault.pointer.strip_prefix("/items/0") {
            fault.pointer = rest.to_owned();
        }
    }
    problem
}
