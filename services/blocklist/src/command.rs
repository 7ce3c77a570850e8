//! Commands of the ledger, each with the channel of its answer.

use hayward_blocklist_api::{BlockEntry, Evidence, StrategyView};
use hayward_blocklist_domain::Fact;
use hayward_publication::invariants::Findings;
use hayward_publication::{Reply, Update};
use hayward_rm_scheduler_api::evidence::{ClearingEntry, FactEntry, MachineEntry};
use hayward_vocabulary::NodeName;

use crate::error::Refusal;
use crate::model::{Done, Orders, Removal};
use crate::strategy;

pub enum Command {
    Add(Orders, Reply<Result<Vec<Done>, Refusal>>),
    Remove(Removal, Reply<Result<(), Refusal>>),
    /// Failures that owners tell: the items that came of them.
    Report(Vec<(NodeName, Fact)>, Reply<Vec<BlockEntry>>),
    Choose(strategy::Read, String, Reply<Result<StrategyView, Refusal>>),
    Evidence(String, Reply<Option<Evidence>>),
    Machines(Update<MachineEntry>, Reply<()>),
    Facts(Update<FactEntry>, Reply<()>),
    Clearings(Update<ClearingEntry>, Reply<()>),
    /// How the invariants stand.
    Invariants(Reply<Findings>),
}
