//! Rows of settled allocations. Job-converter has recorded the end of a settled allocation, so the
//! end is not recorded again.

use sqlx::PgConnection;
use uuid::Uuid;

/// A settled allocation.
pub struct SettledRow {
    pub allocation: String,
    /// Work id of the demand entry: a job, a reservation, or one processor of a service.
    pub slot: String,
    pub work: Uuid,
}

pub async fn insert(tx: &mut PgConnection, rows: &[SettledRow]) -> Result<(), sqlx::Error> {
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

pub async fn delete(tx: &mut PgConnection, deleted: &[String]) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from settled where allocation = any($1)", deleted)
        .execute(tx)
        .await
        .map(drop)
}
