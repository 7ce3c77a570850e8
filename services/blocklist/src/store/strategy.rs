//! The table `strategy`, which has at most one row: the strategy that an operator set.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;

/// The row of the table.
#[derive(Debug, Clone)]
pub struct StrategyRow {
    pub name: String,
    pub parameters: BTreeMap<String, Value>,
    pub set_by: String,
    pub set_at: Timestamp,
}

pub async fn load(tx: &mut PgConnection) -> Result<Option<StrategyRow>, sqlx::Error> {
    let row = sqlx::query!(
        r#"select name, parameters::text as "parameters!", chosen_by, chosen_ms from strategy"#
    )
    .fetch_optional(tx)
    .await?;
    row.map(|row| {
        let parameters = serde_json::from_str(&row.parameters)
            .map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(StrategyRow {
            name: row.name,
            parameters,
            set_by: row.chosen_by,
            set_at: Timestamp::from_unix_ms(row.chosen_ms),
        })
    })
    .transpose()
}

pub async fn upsert(row: &StrategyRow, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    // Serialization cannot fail, because the parameters were parsed from JSON.
    let parameters = serde_json::to_string(&row.parameters).unwrap_or_default();
    sqlx::query!(
        "insert into strategy (name, parameters, chosen_by, chosen_ms)
         values ($1, $2::text::json, $3, $4)
         on conflict (one) do update
            set name = excluded.name, parameters = excluded.parameters,
                chosen_by = excluded.chosen_by, chosen_ms = excluded.chosen_ms",
        &row.name,
        &parameters,
        &row.set_by,
        row.set_at.unix_ms()
    )
    .execute(tx)
    .await
    .map(drop)
}
