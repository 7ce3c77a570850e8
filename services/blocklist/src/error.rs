//! What blocklist says when it will not.

use hayward_blocklist_api::BlockEntry;
use hayward_blocklist_domain::Withheld;
use hayward_service::http::problem::{Code, FieldFault, Problem};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the blocklist is switched off by its setting `enabled`; switch it on, then order again"
    )]
    Disabled,
    #[error("a block of {0}")]
    NoItem(String),
    #[error(
        "{} is blocked already, until {}, because: {}; send allow_merge to merge into that",
        .0.key(),
        .0.end.map_or_else(|| "it is taken away".to_owned(), |end| end.to_string()),
        .0.cause
    )]
    Exists(Box<BlockEntry>),
    #[error("{0} changed since it was read")]
    Changed(String),
    /// Number of the item in its batch, its node, and how many are known.
    #[error("there is no node {1:?}; the {2} known here include nodes that were forgotten")]
    UnknownNode(usize, String, usize),
    #[error("{1}")]
    Brake(usize, Withheld),
    #[error("this is not a strategy that can be used")]
    Strategy(Vec<FieldFault>),
    #[error("{0}")]
    TooBroad(String),
    /// So many there are, and may be.
    #[error("{0} items are kept, and {1} at most may be; wait until some end, or take some away")]
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
                let detail = "name a node of the fleet; `hayward nodes` lists those of today";
                Self::new(Code::Invalid, text).at(format!("/items/{number}/identifier"), detail)
            }
            Refusal::Brake(number, _) => {
                let detail =
                    "an automatic block keeps to the brakes; a person may block it by hand";
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

/// The pointer of a fault where the body is one item and no batch.
pub fn of_one(mut problem: Problem) -> Problem {
    for fault in &mut problem.errors {
        if let Some(rest) = fault.pointer.strip_prefix("/items/0") {
            fault.pointer = rest.to_owned();
        }
    }
    problem
}
