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

pub enum Command {
    /// A heartbeat that differs from the last one, or of a node without a standing decision.
    Heartbeat {
        node: NodeName,
        heartbeat: Box<Heartbeat>,
        digest: u64,
        reply: Answer<HeartbeatAnswer>,
    },
    Vary {
        node: NodeName,
        change: Schedulable,
        by: String,
        reply: Answer<NodeEntry>,
    },
    Remove {
        node: NodeName,
        by: String,
        reply: Answer<()>,
    },
    /// Selects the agent that represents the node.
    Identify {
        node: NodeName,
        instance: String,
        by: String,
        reply: Answer<NodeEntry>,
    },
    Drain {
        node: NodeName,
        request: DrainRequest,
        by: String,
        reply: Answer<DrainView>,
    },
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
