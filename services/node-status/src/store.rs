//! All SQL of node-status, one file per table. Rows of one batch are written in multi-row
//! statements.

mod change;
mod claimed_size;
mod drain;
mod enrolment;
mod node;

use std::collections::BTreeMap;

use hayward_vocabulary::NodeName;
use sqlx::PgConnection;

pub use self::change::{ChangeRow, history};
pub use self::claimed_size::load_limits;
pub use self::drain::{DrainRow, load_drains};
pub use self::enrolment::load_enrolments;
pub use self::node::{NodeRow, load_nodes};
use crate::model::{ClaimLimits, Enrolment};

/// Rows that one batch changes.
#[derive(Default)]
pub struct Rows {
    /// The new row of a node, or none to delete it.
    pub nodes: BTreeMap<NodeName, Option<NodeRow>>,
    pub changes: Vec<ChangeRow>,
    /// Nodes with a history that must be trimmed.
    pub histories_to_trim: Vec<NodeName>,
    pub enrolments: BTreeMap<(String, String), Enrolment>,
    pub forgotten_enrolments: Vec<(String, String)>,
    /// The limits of a node, or none to delete them.
    pub limits: BTreeMap<NodeName, Option<ClaimLimits>>,
    pub drains: BTreeMap<NodeName, DrainRow>,
}

impl Rows {
    /// Number of rows to write.
    pub fn weight(&self) -> usize {
        let all = [
            self.nodes.len(),
            self.changes.len(),
            self.enrolments.len(),
            self.forgotten_enrolments.len(),
            self.limits.len(),
            self.drains.len(),
        ];
        all.into_iter().sum()
    }
}

pub async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    node::write(rows.nodes, tx).await?;
    change::append(&rows.changes, tx).await?;
    change::trim(&rows.histories_to_trim, tx).await?;
    enrolment::write(rows.enrolments, tx).await?;
    enrolment::forget(rows.forgotten_enrolments, tx).await?;
    claimed_size::write(rows.limits, tx).await?;
    drain::write(rows.drains, tx).await
}
