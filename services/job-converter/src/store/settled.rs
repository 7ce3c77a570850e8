//! Rows of settled allocations and of backoffs. The end of a settled allocation was processed for
//! its work, and is not processed again. A backoff counts ends without progress in a row.
//!
//! A slot is the work id of a demand entry: a job, or one instance of a service.

use sqlx::PgConnection;
use uuid::Uuid;

/// A settled allocation.
pub struct SettledRow {
    pub allocation: String,
    pub slot: String,
    pub work: Uuid,
}

/// Ends without progress of one slot.
pub struct BackoffRow {
    pub slot: String,
    pub work: Uuid,
    /// Number of such ends in a row. 0 deletes the row.
    pub strikes: i32,
}

pub async fn insert_settled(tx: &mut PgConnection, rows: &[SettledRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let allocations: Vec<String> = rows.iter().map(|row| row.allocation.clone()).collect();
    let slots: Vec<String> = rows.iter().map(|row| row.slot.clone()).collect();
    let works: Vec<Uuid> = rows.iter().map(|row| row.work).collect();
    sqlx::query!(
        "insert into settled (allocation, slot, work)
         select * from unnest($1::text[], $2::text[], $3::uuid[])
         on conflict (allocation) do nothing",
        &allocations,
        &slots,
        &works
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete_settled(tx: &mut PgConnection, deleted: &[String]) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from settled where allocation = any($1)", deleted)
        .execute(tx)
        .await
        .map(drop)
}

/// Writes counts of ends without progress. The last count of each slot is stored, and 0 deletes the
/// row.
pub async fn upsert_backoffs(
    tx: &mut PgConnection,
    rows: &[BackoffRow],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut last: std::collections::BTreeMap<&str, &BackoffRow> = std::collections::BTreeMap::new();
    for row in rows {
        last.insert(&row.slot, row);
    }
    let (deleted, stored): (Vec<&BackoffRow>, Vec<&BackoffRow>) =
        last.into_values().partition(|row| row.strikes == 0);
    let deleted: Vec<String> = deleted.iter().map(|row| row.slot.clone()).collect();
    sqlx::query!("delete from brake where slot = any($1)", &deleted)
        .execute(&mut *tx)
        .await?;
    let slots: Vec<String> = stored.iter().map(|row| row.slot.clone()).collect();
    let works: Vec<Uuid> = stored.iter().map(|row| row.work).collect();
    let strikes: Vec<i32> = stored.iter().map(|row| row.strikes).collect();
    sqlx::query!(
        "insert into brake (slot, work, strikes)
         select * from unnest($1::text[], $2::uuid[], $3::int[])
         on conflict (slot) do update set strikes = excluded.strikes",
        &slots,
        &works,
        &strikes
    )
    .execute(tx)
    .await
    .map(drop)
}
