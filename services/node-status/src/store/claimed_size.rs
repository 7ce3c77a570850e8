//! The table `node_limit`: what a node may claim (S14, S15).

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size};
use sqlx::PgConnection;

use crate::model::Bounds;

pub async fn load_limits(tx: &mut PgConnection) -> Result<BTreeMap<NodeName, Bounds>, sqlx::Error> {
    let rows = sqlx::query!(r#"select node, most::text as "most!", pool from node_limit"#)
        .fetch_all(tx)
        .await?;
    let mut limits = BTreeMap::new();
    for row in rows {
        let node = NodeName::new(row.node).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let most = serde_json::from_str(&row.most);
        let bounds = Bounds {
            most: most.map_err(|error| sqlx::Error::Decode(error.into()))?,
            pool: row.pool,
        };
        limits.insert(node, bounds);
    }
    Ok(limits)
}

/// Nodes are enrolled one at a time, so these are single rows.
pub async fn write(
    limits: BTreeMap<NodeName, Option<Bounds>>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    for (node, bounds) in limits {
        let Some(Bounds { most, pool }) = bounds else {
            sqlx::query!("delete from node_limit where node = $1", node.as_str())
                .execute(&mut *tx)
                .await?;
            continue;
        };
        sqlx::query!(
            "insert into node_limit (node, most, pool) values ($1, $2::text::json, $3)
             on conflict (node) do update set most = excluded.most, pool = excluded.pool",
            node.as_str(),
            text(&most),
            pool
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// Numbers keyed by text always have a JSON form.
pub fn text(size: &Size) -> String {
    serde_json::to_string(size).unwrap_or_default()
}
