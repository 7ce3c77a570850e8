//! All SQL of node-status, one file per table.

mod drain;
mod enrolment;
mod node;
mod node_change;
mod node_limit;

use std::collections::BTreeMap;

use hayward_vocabulary::NodeName;
use sqlx::PgConnection;

pub use self::drain::{DrainRow, load_drains};
pub use self::enrolment::load_enrolments;
pub use self::node::{NodeRow, load_nodes};
pub use self::node_change::{ChangeRow, load_history};
pub use self::node_limit::load_limits;
use crate::model::{ClaimLimits, Enrolment};

/// Rows that one batch changes.
#[derive(Default)]
pub struct Rows {
    /// New rows of nodes. `None` deletes the row.
    pub nodes: BTreeMap<NodeName, Option<NodeRow>>,
    pub changes: Vec<ChangeRow>,
    /// Nodes whose history must be trimmed.
    pub histories_to_trim: Vec<NodeName>,
    pub enrolments: BTreeMap<(String, String), Enrolment>,
    pub removed_enrolments: Vec<(String, String)>,
    /// New limits of nodes. `None` deletes the limits.
    pub limits: BTreeMap<NodeName, Option<ClaimLimits>>,
    pub drains: BTreeMap<NodeName, DrainRow>,
}

impl Rows {
    /// Returns the number of rows to write.
    pub fn row_count(&self) -> usize {
        let counts = [
            self.nodes.len(),
            self.changes.len(),
            self.enrolments.len(),
            self.removed_enrolments.len(),
            self.limits.len(),
            self.drains.len(),
        ];
        counts.into_iter().sum()
    }
}

/// Writes the rows of one batch.
pub async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    node::write(rows.nodes, tx).await?;
    node_change::append(&rows.changes, tx).await?;
    node_change::trim(&rows.histories_to_trim, tx).await?;
    enrolment::write(rows.enrolments, tx).await?;
    enrolment::delete(rows.removed_enrolments, tx).await?;
    node_limit::write(rows.limits, tx).await?;
    drain::write(rows.drains, tx).await
}
