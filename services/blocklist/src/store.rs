//! All SQL of blocklist, one file per table.

pub mod auto_block;
mod block;
mod change;
mod fact;
pub mod known_node;
pub mod strategy;

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_domain::FactKind;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

pub use self::auto_block::AutoBlockRow;
pub use self::block::{BlockRow, load_blocks};
pub use self::change::{ChangeRow, load_changes_after, load_history};
pub use self::fact::{FactRow, cause_name, load_facts};
pub use self::strategy::StrategyRow;
use crate::model::Key;

/// Rows that one batch changes.
#[derive(Default)]
pub struct Rows {
    /// New rows of keys. `None` deletes the row.
    pub blocks: BTreeMap<Key, Option<BlockRow>>,
    pub changes: Vec<ChangeRow>,
    /// True if the history must be trimmed.
    pub trim_changes: bool,
    /// Nodes whose stored facts are marked as spent.
    pub spent_nodes: BTreeSet<NodeName>,
    pub facts: Vec<FactRow>,
    /// Keys and kinds of facts to delete.
    pub removed_facts: Vec<(String, FactKind)>,
    pub auto_blocks: Vec<AutoBlockRow>,
    /// Deletes the automatic blocks that began at or before this instant. `None` deletes nothing.
    pub remove_auto_blocks_until: Option<Timestamp>,
    /// Names of nodes that were published for the first time.
    pub new_nodes: Vec<String>,
    pub strategy: Option<StrategyRow>,
}

impl Rows {
    /// Returns the number of rows to write.
    pub fn count(&self) -> usize {
        let counts = [
            self.blocks.len(),
            self.changes.len(),
            self.spent_nodes.len(),
            self.facts.len(),
            self.removed_facts.len(),
            self.auto_blocks.len(),
            self.new_nodes.len(),
            usize::from(self.strategy.is_some()),
        ];
        counts.into_iter().sum()
    }
}

/// Writes the rows of one batch.
pub async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    block::write(rows.blocks, tx).await?;
    if !rows.changes.is_empty() {
        change::append(&rows.changes, tx).await?;
    }
    if rows.trim_changes {
        change::trim(tx).await?;
    }
    // Stored facts are marked before new ones are inserted, because new facts have their own flag.
    if !rows.spent_nodes.is_empty() {
        fact::mark_spent(&rows.spent_nodes, tx).await?;
    }
    if !rows.facts.is_empty() {
        fact::insert(&rows.facts, tx).await?;
    }
    if !rows.removed_facts.is_empty() {
        fact::delete(&rows.removed_facts, tx).await?;
    }
    auto_block::append(&rows.auto_blocks, tx).await?;
    if let Some(until) = rows.remove_auto_blocks_until {
        auto_block::delete_until(until, tx).await?;
    }
    if !rows.new_nodes.is_empty() {
        known_node::insert(&rows.new_nodes, tx).await?;
    }
    if let Some(row) = &rows.strategy {
        strategy::upsert(row, tx).await?;
    }
    Ok(())
}
