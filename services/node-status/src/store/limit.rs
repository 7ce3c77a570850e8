//! The table `node_limit`: the most a node may claim (S15).

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size};
use sqlx::PgConnection;

pub async fn load_limits(tx: &mut PgConnection) -> Result<BTreeMap<NodeName, Size>, sqlx::Error> {
    let rows = sqlx::query!(r#"select node, most::text as "most!" from node_limit"#)
        .fetch_all(tx)
        .await?;
    let mut limits = BTreeMap::new();
    for row in rows {
        let node = NodeName::new(row.node).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let most = serde_json::from_str(&row.most);
        limits.insert(
            node,
            most.map_err(|error| sqlx::Error::Decode(error.into()))?,
        );
    }
    Ok(limits)
}

/// Nodes are enrolled one at a time, so these are single rows.
pub async fn write(
    limits: BTreeMap<NodeName, Option<Size>>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    for (node, most) in limits {
        let Some(most) = most else {
            sqlx::query!("delete from node_limit where node = $1", node.as_str())
                .execute(&mut *tx)
                .await?;
            continue;
        };
        sqlx::query!(
            "insert into node_limit (node, most) values ($1, $2::text::json)
             on conflict (node) do update set most = excluded.most",
            node.as_str(),
            text(&most)
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
