//! The table `machine_seen`: the names of all nodes that were ever published.

use sqlx::PgConnection;

pub async fn load(tx: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!("select node from machine_seen")
        .fetch_all(tx)
        .await
}

pub async fn insert(nodes: &[String], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into machine_seen (node) select * from unnest($1::text[]) on conflict do nothing",
        nodes
    )
    .execute(tx)
    .await
    .map(drop)
}
