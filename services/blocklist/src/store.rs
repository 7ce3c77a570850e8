//! All SQL of blocklist, one file per table. Rows of one batch are written in multi-row statements.

mod block;
mod change;

use std::collections::BTreeMap;

use sqlx::PgConnection;

pub use self::block::{BlockRow, load_blocks};
pub use self::change::{ChangeRow, history};
use crate::ledger::Key;

/// What one batch changes.
#[derive(Default)]
pub struct Rows {
    /// The key as it is now, or that nothing is left to remember of it.
    pub blocks: BTreeMap<Key, Option<BlockRow>>,
    pub changes: Vec<ChangeRow>,
    /// The history has grown long enough to be trimmed.
    pub trim_changes: bool,
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.changes.is_empty()
    }
}

pub async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    block::write(rows.blocks, tx).await?;
    change::append(&rows.changes, tx).await?;
    if rows.trim_changes {
        change::trim(tx).await?;
    }
    Ok(())
}
