//! The table `node_limit`: limits of the claims of nodes (S15).

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size};
use sqlx::PgConnection;

use crate::model::ClaimLimits;

pub async fn load_limits(
    tx: &mut PgConnection,
) -> Result<BTreeMap<NodeName, ClaimLimits>, sqlx::Error> {
    let rows = sqlx::query!(r#"select node, most::text as "most!", pool from node_limit"#)
        .fetch_all(tx)
        .await?;
    let mut limits = BTreeMap::new();
    for row in rows {
        let node = NodeName::new(row.node).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let max_size = serde_json::from_str(&row.most);
        let claim_limits = ClaimLimits {
            max_size: max_size.map_err(|error| sqlx::Error::Decode(error.into()))?,
            pool: row.pool,
        };
        limits.insert(node, claim_limits);
    }
    Ok(limits)
}

/// Writes rows one by one, because operators enrol one node at a time.
pub async fn write(
    limits: BTreeMap<NodeName, Option<ClaimLimits>>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    for (node, claim_limits) in limits {
        let Some(ClaimLimits { max_size, pool }) = claim_limits else {
            sqlx::query!("delete from node_limit where node = $1", node.as_str())
                .execute(&mut *tx)
                .await?;
            continue;
        };
        sqlx::query!(
            "insert into node_limit (node, most, pool) values ($1, $2::text::json, $3)
             on conflict (node) do update set most = excluded.most, pool = excluded.pool",
            node.as_str(),
            size_text(&max_size),
            pool
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// Serializes a size. This cannot fail, because a size contains only numbers.
pub fn size_text(size: &Size) -> String {
    serde_json::to_string(size).unwrap_or_default()
}
