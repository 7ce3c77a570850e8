//! Rows of crash-loop backoffs: how many processes in a row ended without progress.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

/// Backoff of one slot.
pub struct BackoffRow {
    /// Work id of the demand entry: a job, a reservation, or one processor of a service.
    pub slot: String,
    pub work: Uuid,
    /// Number of ends without progress in a row. 0 deletes the row.
    pub strikes: i32,
}

/// Writes backoffs. The last row of each slot is stored, and a row with 0 strikes is deleted.
pub async fn upsert(tx: &mut PgConnection, rows: &[BackoffRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut last: BTreeMap<&str, &BackoffRow> = BTreeMap::new();
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
