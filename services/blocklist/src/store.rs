//! All SQL of blocklist, one file per table. Rows of one batch are written in multi-row statements.

mod auto_block;
mod block;
mod change;
mod fact;

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_domain::NodeFact;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

pub use self::auto_block::{
    AutoBlockRow, StrategyRow, load_auto_blocks, load_known_nodes, load_strategy,
};
pub use self::block::{BlockRow, load_blocks};
pub use self::change::{ChangeRow, feed, history};
pub use self::fact::{FactRow, cause_name, load_facts};
use crate::model::Key;

/// Rows that one batch changes.
#[derive(Default)]
pub struct Rows {
    /// The new row of a key, or none to delete it.
    pub blocks: BTreeMap<Key, Option<BlockRow>>,
    pub changes: Vec<ChangeRow>,
    /// True when the history must be trimmed.
    pub trim_changes: bool,
    /// Nodes with earlier facts that are marked as spent.
    pub spent: BTreeSet<NodeName>,
    pub facts: Vec<FactRow>,
    pub forgotten: Vec<(String, NodeFact)>,
    pub auto_blocks: Vec<AutoBlockRow>,
    /// Automatic blocks that began before this instant are deleted.
    pub forgive_before: Option<Timestamp>,
    /// Names of nodes seen for the first time.
    pub new_nodes: Vec<String>,
    pub strategy: Option<StrategyRow>,
}

impl Rows {
    /// Number of rows to write.
    pub fn weight(&self) -> usize {
        let all = [
            self.blocks.len(),
            self.changes.len(),
            self.spent.len(),
            self.facts.len(),
            self.forgotten.len(),
            self.auto_blocks.len(),
            self.new_nodes.len(),
            usize::from(self.strategy.is_some()),
        ];
        all.into_iter().sum()
    }
}

pub async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    block::write(rows.blocks, tx).await?;
    if !rows.changes.is_empty() {
        change::append(&rows.changes, tx).await?;
    }
    if rows.trim_changes {
        change::trim(tx).await?;
    }
    // Facts of this batch carry their own `spent` flag, so the older ones are marked first.
    if !rows.spent.is_empty() {
        fact::spend(&rows.spent, tx).await?;
    }
    if !rows.facts.is_empty() {
        fact::insert(&rows.facts, tx).await?;
    }
    if !rows.forgotten.is_empty() {
        fact::forget(&rows.forgotten, tx).await?;
    }
    auto_block::append_auto_blocks(&rows.auto_blocks, tx).await?;
    if let Some(before) = rows.forgive_before {
        auto_block::forget_auto_blocks(before, tx).await?;
    }
    if !rows.new_nodes.is_empty() {
        auto_block::remember_nodes(&rows.new_nodes, tx).await?;
    }
    if let Some(strategy) = &rows.strategy {
        auto_block::set_strategy(strategy, tx).await?;
    }
    Ok(())
}
