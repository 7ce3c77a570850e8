//! Refusals of commands by the ledger, and the problem documents for them.

use hayward_node_status_domain::pool_minimum::BrokenLimit;
use hayward_service::http::problem::{Code, Problem};
use hayward_vocabulary::NodeName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("node {0}")]
    NoNode(NodeName),
    #[error(
        "node {node} is refused: {count} nodes are known, and `max_nodes` is {max_nodes}; remove \
         lost nodes"
    )]
    Full {
        node: NodeName,
        count: usize,
        max_nodes: usize,
    },
    #[error("node {node} is {health}; only a lost node can be removed: {advice}")]
    NotLost {
        node: NodeName,
        health: &'static str,
        advice: &'static str,
    },
    #[error("an operator selected another agent for node {0}; restart this one if that was wrong")]
    OtherAgent(NodeName),
    /// The node was enrolled for another pool (S14).
    #[error("node {node} was enrolled for pool {pool} and claims pool {claimed}")]
    OtherPool {
        node: NodeName,
        pool: String,
        claimed: String,
    },
    #[error("no agent of that instance reports as node {node}")]
    NoInstance {
        node: NodeName,
        /// Instances that report as the node.
        instances: Vec<String>,
    },
    #[error("drain of node {0}")]
    NoDrain(NodeName),
    #[error("invalid drain request")]
    InvalidDrain(Vec<(&'static str, String)>),
    #[error(
        "pool {pool} has {}, of which {unavailable} take no work; without {node} {}",
        node_count_text(*.size), limit_text(*.broken_limit, *.minimum, *.percent)
    )]
    TooFew {
        node: NodeName,
        pool: String,
        size: u64,
        /// Nodes that already take no work.
        unavailable: u64,
        minimum: u64,
        percent: u64,
        broken_limit: BrokenLimit,
    },
    /// The secret is wrong, used, expired or unknown. The caller does not learn which of these.
    #[error("invalid secret for this node")]
    InvalidSecret,
    #[error("this Idempotency-Key was already used with another request")]
    KeyUsedBefore,
}

fn node_count_text(count: u64) -> String {
    match count {
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    }
}

fn limit_text(broken_limit: BrokenLimit, minimum: u64, percent: u64) -> String {
    match broken_limit {
        BrokenLimit::Minimum { remaining } => {
            format!("{remaining} would work, and its floor is {minimum}")
        }
        BrokenLimit::Percentage {
            unavailable,
            max_unavailable,
        } => {
            format!(
                "it would be {unavailable}, and at most {max_unavailable} may be out ({percent} %)"
            )
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::NoNode(_) | Refusal::NoDrain(_) => Problem::not_found(refusal),
            Refusal::NotLost { .. } | Refusal::OtherAgent(_) | Refusal::Full { .. } => {
                Problem::new(Code::Conflict, refusal.to_string())
            }
            Refusal::OtherPool { .. } => Problem::forbidden(refusal.to_string()),
            Refusal::TooFew { .. } => Problem::new(Code::Conflict, refusal.to_string())
                .at("/force", "set true to drain it anyway"),
            Refusal::NoInstance { instances, .. } => {
                Problem::new(Code::Invalid, refusal.to_string()).at(
                    "/agent_instance",
                    format!("one of {}", instances.join(", ")),
                )
            }
            Refusal::InvalidDrain(faults) => faults.iter().fold(
                Problem::new(Code::Invalid, refusal.to_string()),
                |problem, (pointer, detail)| problem.at(*pointer, detail),
            ),
            Refusal::InvalidSecret => Problem::new(Code::Unauthenticated, refusal.to_string()),
            Refusal::KeyUsedBefore => Problem::new(Code::IdempotencyMismatch, refusal.to_string()),
        }
    }
}
