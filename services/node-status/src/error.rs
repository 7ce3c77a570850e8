//! Reasons for which the ledger refuses a command.

use hayward_node_status_domain::pool_minimum::TooFew;
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::NodeName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("node {0}")]
    NoNode(NodeName),
    #[error("node {0} is refused: {1} nodes are known, and `max_nodes` is {2}; remove lost nodes")]
    Full(NodeName, usize, usize),
    #[error("node {0} is {1}; only a lost node can be removed: {2}")]
    NotLost(NodeName, &'static str, &'static str),
    #[error("an operator selected another agent for node {0}; restart this one if that was wrong")]
    OtherAgent(NodeName),
    /// The node was enrolled for another pool (S14).
    #[error("node {node} was enrolled for pool {pool} and claims pool {claimed}")]
    OtherPool {
        node: NodeName,
        pool: String,
        claimed: String,
    },
    #[error("no agent of that instance reports as node {0}")]
    NoInstance(NodeName, Vec<String>),
    #[error("drain of node {0}")]
    NoDrain(NodeName),
    #[error("invalid drain request")]
    BadDrain(Vec<(&'static str, String)>),
    #[error(
        "pool {pool} has {}, of which {out} take no work; without {node} {}",
        nodes(*.size), numbers(*.few, *.floor, *.percent)
    )]
    TooFew {
        node: NodeName,
        pool: String,
        size: u64,
        /// Nodes that already take no work.
        out: u64,
        floor: u64,
        percent: u64,
        few: TooFew,
    },
    /// Wrong, used, expired or unknown; the caller learns no more than that.
    #[error("invalid secret for this node")]
    BadSecret,
    #[error("this Idempotency-Key was already used with another request")]
    KeyUsedBefore,
}

fn nodes(count: u64) -> String {
    match count {
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    }
}

fn numbers(few: TooFew, floor: u64, percent: u64) -> String {
    match few {
        TooFew::Floor { left } => format!("{left} would work, and its floor is {floor}"),
        TooFew::Fraction { out, most } => {
            format!("it would be {out}, and at most {most} may be out ({percent} %)")
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::NoNode(_) | Refusal::NoDrain(_) => Problem::not_found(refusal),
            Refusal::NotLost(..) | Refusal::OtherAgent(_) | Refusal::Full(..) => {
                Problem::new(Code::Conflict, refusal.to_string())
            }
            Refusal::OtherPool { .. } => Problem::forbidden(refusal.to_string()),
            Refusal::TooFew { .. } => Problem::new(Code::Conflict, refusal.to_string())
                .at("/force", "set true to drain it anyway"),
            Refusal::NoInstance(_, known) => Problem::new(Code::Invalid, refusal.to_string())
                .at("/agent_instance", format!("one of {}", known.join(", "))),
            Refusal::BadDrain(faults) => faults.iter().fold(
                Problem::new(Code::Invalid, refusal.to_string()),
                |problem, (pointer, detail)| problem.at(*pointer, detail),
            ),
            Refusal::BadSecret => Problem::new(Code::Unauthenticated, refusal.to_string()),
            Refusal::KeyUsedBefore => Problem::new(Code::IdempotencyMismatch, refusal.to_string()),
        }
    }
}
