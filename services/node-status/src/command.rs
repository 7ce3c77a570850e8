//! Commands of the ledger, each with the channel of its answer.

use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, NodeEntry, Schedulable};
use hayward_publication::invariants::Findings;
use hayward_publication::{Reply, Update};
use hayward_rm_scheduler_api::evidence::{ClearingEntry, MachineEntry};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::error::Refusal;
use crate::model::NewEnrolment;

type Answer<T> = Reply<Result<T, Refusal>>;

/// A heartbeat that differs from the last one, or of a node without a standing decision.
pub struct HeartbeatCommand {
    pub node: NodeName,
    pub heartbeat: Box<Heartbeat>,
    pub digest: u64,
}

pub struct VaryCommand {
    pub node: NodeName,
    pub change: Schedulable,
    /// Name of the operator.
    pub by: String,
}

/// Selects the agent that represents the node.
pub struct IdentifyCommand {
    pub node: NodeName,
    pub instance: String,
    /// Name of the operator.
    pub by: String,
}

/// Begins a drain, or changes the active one.
pub struct DrainCommand {
    pub node: NodeName,
    pub request: DrainRequest,
    /// Name of the operator.
    pub by: String,
}

pub enum Command {
    Heartbeat(HeartbeatCommand, Answer<HeartbeatAnswer>),
    Vary(VaryCommand, Answer<NodeEntry>),
    Remove {
        node: NodeName,
        by: String,
        reply: Answer<()>,
    },
    Identify(IdentifyCommand, Answer<NodeEntry>),
    Drain(DrainCommand, Answer<DrainView>),
    CancelDrain {
        node: NodeName,
        by: String,
        reply: Answer<DrainView>,
    },
    /// A query, because the progress of a drain is in the ledger only.
    ShowDrain {
        node: NodeName,
        reply: Answer<DrainView>,
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
        reply: Answer<Timestamp>,
    },
    Redeem {
        node: NodeName,
        secret_digest: [u8; 32],
        reply: Answer<()>,
    },
    /// Checks the invariants of the ledger.
    Invariants(Reply<Findings>),
}
