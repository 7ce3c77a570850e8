//! The table `node_change`: the history of nodes, with a bounded number of rows per node.

use hayward_node_status_api::NodeChange;
use hayward_vocabulary::{NodeName, Timestamp};
use sqlx::{PgConnection, PgPool};

use crate::state_conversions;

/// Minimum number of changes stored per node. Older changes are deleted.
const MIN_CHANGES: i64 = 200;

/// One row of the table.
#[derive(Debug)]
pub struct ChangeRow {
    pub node: NodeName,
    pub at: Timestamp,
    pub health: &'static str,
    pub schedulable: bool,
    pub reason: String,
    pub by: Option<String>,
}

pub async fn append(changes: &[ChangeRow], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let column = |pick: fn(&ChangeRow) -> &str| -> Vec<String> {
        changes.iter().map(|row| pick(row).to_owned()).collect()
    };
    let at_ms: Vec<i64> = changes.iter().map(|row| row.at.unix_ms()).collect();
    let schedulable: Vec<bool> = changes.iter().map(|row| row.schedulable).collect();
    let by: Vec<Option<String>> = changes.iter().map(|row| row.by.clone()).collect();
    sqlx::query!(
        "insert into node_change (node, at_ms, health, schedulable, reason, by)
         select * from unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $5::text[],
                              $6::text[])",
        &column(|row| row.node.as_str()),
        &at_ms,
        &column(|row| row.health),
        &schedulable,
        &column(|row| &row.reason),
        &by as &[Option<String>]
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn trim(nodes: &[NodeName], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    if nodes.is_empty() {
        return Ok(());
    }
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "delete from node_change using (
             select crowded.node, (
                 select serial from node_change
                  where node = crowded.node order by serial desc offset $2 limit 1
             ) as newest
               from unnest($1::text[]) as crowded (node)
         ) as old
         where node_change.node = old.node and node_change.serial <= old.newest",
        &nodes,
        MIN_CHANGES
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Returns up to `limit` changes older than `before`, newest first, each with its serial.
pub async fn load_history(
    pool: &PgPool,
    node: &NodeName,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<(i64, NodeChange)>, sqlx::Error> {
    let rows = sqlx::query!(
        "select serial, at_ms, health, schedulable, reason, by from node_change
          where node = $1 and serial < $2 order by serial desc limit $3",
        node.as_str(),
        before.unwrap_or(i64::MAX),
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let change = NodeChange {
                at: Timestamp::from_unix_ms(row.at_ms),
                health: state_conversions::parse_published_health(&row.health),
                schedulable: row.schedulable,
                reason: row.reason,
                by: row.by,
            };
            (row.serial, change)
        })
        .collect())
}
