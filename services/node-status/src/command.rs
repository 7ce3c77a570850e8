//! Commands of the ledger, each with the channel of its answer.

use hayward_node_status_api::drain::{DrainRequest, DrainView};
use hayward_node_status_api::{Heartbeat, HeartbeatAnswer, NodeEntry, Schedulable};
use hayward_publication::invariants::Findings;
use hayward_publication::{Reply, Update};
use hayward_rm_scheduler_api::evidence::{ClearingEntry, MachineEntry};
use hayward_vocabulary::{NodeName, Timestamp};

use crate::error::Refusal;
use crate::model::Asked;

type Answer<T> = Reply<Result<T, Refusal>>;

pub enum Command {
    /// A heartbeat that is not the same as the last, or of a node that is not well.
    Heartbeat {
        node: NodeName,
        beat: Box<Heartbeat>,
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
    /// Which of several agents is the node.
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
    /// Read here, because what it says of progress is nowhere else.
    ShowDrain {
        node: NodeName,
        reply: Answer<DrainView>,
    },
    /// News of rm-scheduler.
    Clearings {
        update: Update<ClearingEntry>,
        reply: Reply<()>,
    },
    /// The same: the machines, with the pools that the policy puts them in.
    Machines {
        update: Update<MachineEntry>,
        reply: Reply<()>,
    },
    Enrol {
        asked: Asked,
        reply: Answer<Timestamp>,
    },
    Redeem {
        node: NodeName,
        secret_digest: [u8; 32],
        reply: Answer<()>,
    },
    /// How the invariants stand.
    Invariants(Reply<Findings>),
}
