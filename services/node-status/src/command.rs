//! Commands of the ledger, each with the channel for its result.

use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, NodeEntry, Schedulable};
use hayward_publication::invariants::Findings;
use hayward_publication::{Reply, Update};
use hayward_rm_scheduler_api::node_publications::{ClearingEntry, MachineEntry};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::error::Refusal;
use crate::model::NewEnrolment;

type ResultReply<T> = Reply<Result<T, Refusal>>;

/// A heartbeat with the digest of its content.
pub struct ReceivedHeartbeat {
    pub node: NodeName,
    pub heartbeat: Heartbeat,
    pub digest: u64,
}

/// Request of an operator to vary a node off or on.
pub struct VaryNode {
    pub node: NodeName,
    pub change: Schedulable,
    pub by: String,
}

/// Selection of the agent instance that represents a node.
pub struct IdentifyNode {
    pub node: NodeName,
    pub instance: String,
    pub by: String,
}

/// Request of an operator to begin or change a drain.
pub struct DrainNode {
    pub node: NodeName,
    pub request: DrainRequest,
    pub by: String,
}

pub enum Command {
    /// Heartbeat that differs from the last one, or of a node whose last judgement may not apply.
    Heartbeat {
        received: Box<ReceivedHeartbeat>,
        reply: ResultReply<HeartbeatAnswer>,
    },
    /// Varies a node off, so that it takes no new work, or on again.
    Vary {
        request: VaryNode,
        reply: ResultReply<NodeEntry>,
    },
    Remove {
        node: NodeName,
        by: String,
        reply: ResultReply<()>,
    },
    Identify {
        request: IdentifyNode,
        reply: ResultReply<NodeEntry>,
    },
    Drain {
        request: DrainNode,
        reply: ResultReply<DrainView>,
    },
    CancelDrain {
        node: NodeName,
        by: String,
        reply: ResultReply<DrainView>,
    },
    /// Reads a drain. Only the ledger knows the progress of a drain.
    ShowDrain {
        node: NodeName,
        reply: ResultReply<DrainView>,
    },
    /// Progress of evacuations and drains, published by rm-scheduler.
    Clearings {
        update: Update<ClearingEntry>,
        reply: Reply<()>,
    },
    /// Nodes with their pools by policy, published by rm-scheduler.
    Machines {
        update: Update<MachineEntry>,
        reply: Reply<()>,
    },
    Enrol {
        enrolment: NewEnrolment,
        reply: ResultReply<Timestamp>,
    },
    /// Uses up the secret of an enrolment, before its agent gets a token.
    Redeem {
        node: NodeName,
        secret_digest: [u8; 32],
        reply: ResultReply<()>,
    },
    /// Checks the invariants of the ledger.
    Invariants(Reply<Findings>),
}
