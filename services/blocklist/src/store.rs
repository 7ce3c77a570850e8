//! All SQL of blocklist, one file per table. Rows of one batch are written in multi-row statements.

mod auto_block;
mod block;
mod change;
mod fact;

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_domain::What;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::PgConnection;

pub use self::auto_block::{PastRow, StrategyRow, load_machines, load_past, load_strategy};
pub use self::block::{BlockRow, load_blocks};
pub use self::change::{ChangeRow, feed, history};
pub use self::fact::{FactRow, cause_word, load_facts};
use crate::model::Key;

/// What one batch changes.
#[derive(Default)]
pub struct Rows {
    /// The key as it is now, or that nothing is left to remember of it.
    pub blocks: BTreeMap<Key, Option<BlockRow>>,
    pub changes: Vec<ChangeRow>,
    /// The history has grown long enough to be trimmed.
    pub trim_changes: bool,
    /// Machines whose facts, as far as they were there before, count no more.
    pub spent: BTreeSet<NodeName>,
    pub facts: Vec<FactRow>,
    pub forgotten: Vec<(String, What)>,
    pub past: Vec<PastRow>,
    /// Automatic blocks that began before are forgiven.
    pub forgive_before: Option<Timestamp>,
    /// Machines never seen before.
    pub machines: Vec<String>,
    pub strategy: Option<StrategyRow>,
}

impl Rows {
    /// Rows that are to be written.
    pub fn weight(&self) -> usize {
        let all = [
            self.blocks.len(),
            self.changes.len(),
            self.spent.len(),
            self.facts.len(),
            self.forgotten.len(),
            self.past.len(),
            self.machines.len(),
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
    // Before the facts of this batch are written, which know for themselves whether they are spent.
    if !rows.spent.is_empty() {
        fact::spend(&rows.spent, tx).await?;
    }
    if !rows.facts.is_empty() {
        fact::insert(&rows.facts, tx).await?;
    }
    if !rows.forgotten.is_empty() {
        fact::forget(&rows.forgotten, tx).await?;
    }
    auto_block::append_past(&rows.past, tx).await?;
    if let Some(before) = rows.forgive_before {
        auto_block::forget_past(before, tx).await?;
    }
    if !rows.machines.is_empty() {
        auto_block::remember_machines(&rows.machines, tx).await?;
    }
    if let Some(strategy) = &rows.strategy {
        auto_block::choose(strategy, tx).await?;
    }
    Ok(())
}
