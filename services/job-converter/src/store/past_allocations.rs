//! Rows of the nodes of ended allocations. A task report that arrives after the end is shown with
//! its node.

use sqlx::PgConnection;
use uuid::Uuid;

pub struct PastRow {
    pub allocation: String,
    pub job: Uuid,
    pub node: String,
}

pub async fn insert(tx: &mut PgConnection, rows: &[PastRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let allocations: Vec<String> = rows.iter().map(|row| row.allocation.clone()).collect();
    let jobs: Vec<Uuid> = rows.iter().map(|row| row.job).collect();
    let nodes: Vec<String> = rows.iter().map(|row| row.node.clone()).collect();
    sqlx::query!(
        "insert into past (allocation, job, node)
         select * from unnest($1::text[], $2::uuid[], $3::text[])
         on conflict (allocation) do nothing",
        &allocations,
        &jobs,
        &nodes
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete(tx: &mut PgConnection, deleted: &[String]) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from past where allocation = any($1)", deleted)
        .execute(tx)
        .await
        .map(drop)
}

pub async fn load_all(tx: &mut PgConnection) -> Result<Vec<PastRow>, sqlx::Error> {
    sqlx::query_as!(PastRow, "select allocation, job, node from past")
        .fetch_all(tx)
        .await
}
