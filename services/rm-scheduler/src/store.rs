//! All SQL of rm-scheduler, with one file for each table or group of tables. Statements write many
//! rows at once and make no decisions.

pub mod allocations;
pub mod evacuations;
pub mod planner_state;
pub mod policies;
pub mod published_entries;
pub mod receipts;
pub mod round_inputs;
pub mod rounds;
pub mod usage;
pub mod worker_pools;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::shares::LedgerLine;
use hayward_rm_scheduler_api::views::RoundView;
use hayward_vocabulary::{AllocationId, Receipt, WorkId};

use crate::model::{AllocationRecord, Evacuation, NewPolicy, PlannerStateKey, PlannerStateRows};
use crate::recorder::UnwrittenRound;

/// The row changes of one batch.
#[derive(Debug, Default)]
pub struct Rows {
    /// Rows to insert or update.
    pub allocations: BTreeMap<AllocationId, AllocationRecord>,
    pub removed_allocations: BTreeSet<AllocationId>,
    /// Number of the last attempt of each work.
    pub incarnations: BTreeMap<WorkId, u64>,
    pub removed_incarnations: BTreeSet<WorkId>,
    pub policy: Option<NewPolicy>,
    pub rounds: Vec<RoundView>,
    /// Receipts by number.
    pub receipts: BTreeMap<u64, Receipt>,
    /// Input and plan of the last round, which are encoded when the batch is written.
    pub inputs: Option<UnwrittenRound>,
    /// Due and received quanta of users, by class. `LedgerLine` is the name in the API.
    pub usage: Vec<LedgerLine>,
    /// State of the planner that survives a restart. These rows are inserted or updated.
    pub planner_state: PlannerStateRows,
    /// Keys of the rows of table `carried` to delete.
    pub removed_planner_state: Vec<PlannerStateKey>,
    /// Rows of table `clearing`, by key. `None` deletes the row.
    pub evacuations: BTreeMap<String, Option<Evacuation>>,
    pub pools: worker_pools::PoolRows,
}

impl Rows {
    /// Returns the number of row changes. The committer compares the numbers before and after a
    /// command, so the number must grow with each command that changes rows. A policy therefore
    /// counts as its generation, because a later policy replaces an earlier one in the batch.
    pub fn count(&self) -> usize {
        let counts = [
            self.allocations.len(),
            self.removed_allocations.len(),
            self.incarnations.len(),
            self.removed_incarnations.len(),
            self.policy
                .as_ref()
                .map_or(0, |it| usize::try_from(it.generation).unwrap_or(1)),
            self.rounds.len(),
            self.receipts.len(),
            usize::from(self.inputs.is_some()),
            self.usage.len(),
            self.planner_state.len(),
            self.removed_planner_state.len(),
            self.evacuations.len(),
            self.pools.count(),
        ];
        counts.into_iter().sum()
    }

    pub async fn write(self, tx: &mut sqlx::PgConnection) -> Result<(), sqlx::Error> {
        let inputs = self.inputs.map(round_inputs::Encoding::start);
        allocations::upsert(tx, &self.allocations).await?;
        allocations::delete(tx, &self.removed_allocations).await?;
        allocations::upsert_incarnations(tx, &self.incarnations).await?;
        allocations::delete_incarnations(tx, &self.removed_incarnations).await?;
        if let Some(policy) = self.policy {
            policies::insert(tx, &policy).await?;
        }
        rounds::insert(tx, &self.rounds).await?;
        receipts::upsert(tx, &self.receipts).await?;
        if let Some(encoding) = inputs {
            round_inputs::insert(tx, encoding).await?;
        }
        usage::upsert(tx, &self.usage).await?;
        planner_state::upsert(tx, &self.planner_state).await?;
        planner_state::delete(tx, &self.removed_planner_state).await?;
        evacuations::write(tx, &self.evacuations).await?;
        self.pools.write(tx).await
    }
}

/// Returns a value as JSON. A failure is a defect, because all types of this crate can be
/// serialized. The failure becomes a database error, so that no row of the batch is written.
fn to_json<T: serde::Serialize>(value: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Converts an amount to the signed type of rows. No amount is near the limit.
fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Converts an amount of a row to the unsigned type of the code.
fn unsigned(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}
