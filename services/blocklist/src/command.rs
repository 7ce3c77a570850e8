//! Commands of the ledger, each with the channel of its reply.

use hayward_blocklist_api::{BlockEntry, Evidence, StrategyView};
use hayward_blocklist_domain::Fact;
use hayward_publication::invariants::Findings;
use hayward_publication::{Reply, Update};
use hayward_rm_scheduler_api::node_publications::{ClearingEntry, FactEntry, MachineEntry};
use hayward_vocabulary::NodeName;

use crate::error::Refusal;
use crate::model::{AddResult, BlockRequests, RemoveRequest};
use crate::strategy::ParsedStrategy;

pub enum Command {
    AddBlocks(BlockRequests, Reply<Result<Vec<AddResult>, Refusal>>),
    RemoveBlock(RemoveRequest, Reply<Result<(), Refusal>>),
    /// Adds failures reported by owners. The reply has the resulting items.
    ReportFailures(Vec<(NodeName, Fact)>, Reply<Vec<BlockEntry>>),
    SetStrategy {
        strategy: ParsedStrategy,
        caller_name: String,
        reply: Reply<Result<StrategyView, Refusal>>,
    },
    /// Collects the evidence against a node. The reply is `None` if the node is unknown.
    ShowEvidence {
        node: String,
        reply: Reply<Option<Evidence>>,
    },
    NodesUpdate(Update<MachineEntry>, Reply<()>),
    FactsUpdate(Update<FactEntry>, Reply<()>),
    EvacuationsUpdate(Update<ClearingEntry>, Reply<()>),
    /// Checks the invariants of the ledger.
    CheckInvariants(Reply<Findings>),
}
