//! The tables of automatic blocks, except facts: `block_history` (past automatic blocks),
//! `machine_seen` (names of all nodes ever published) and `strategy`.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;

use super::block::{kind_to_column, parse_job};
use crate::model::{AutoBlock, Key, parse_kind};

/// An automatic block of a key.
#[derive(Debug, Clone)]
pub struct AutoBlockRow {
    pub key: Key,
    pub auto_block: AutoBlock,
}

/// The strategy that an operator set.
#[derive(Debug, Clone)]
pub struct StrategyRow {
    pub name: String,
    pub parameters: BTreeMap<String, Value>,
    pub set_by: String,
    pub set_at: Timestamp,
}

pub async fn load_auto_blocks(tx: &mut PgConnection) -> Result<Vec<AutoBlockRow>, sqlx::Error> {
    let rows = sqlx::query!(
        "select kind, identifier, job, blocked_ms, duration_ms, source
           from block_history order by blocked_ms"
    )
    .fetch_all(tx)
    .await?;
    let mut auto_blocks = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(kind) = parse_kind(&row.kind) else {
            continue;
        };
        auto_blocks.push(AutoBlockRow {
            key: Key {
                kind,
                identifier: row.identifier,
                job: parse_job(&row.job)?,
            },
            auto_block: AutoBlock {
                at: Timestamp::from_unix_ms(row.blocked_ms),
                duration_ms: u64::try_from(row.duration_ms).unwrap_or(0),
                source: row.source,
            },
        });
    }
    Ok(auto_blocks)
}

pub async fn append_auto_blocks(
    rows: &[AutoBlockRow],
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    for row in rows {
        sqlx::query!(
            "insert into block_history (kind, identifier, job, blocked_ms, duration_ms, source)
             values ($1, $2, $3, $4, $5, $6)",
            kind_to_column(row.key.kind),
            &row.key.identifier,
            row.key
                .job
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            row.auto_block.at.unix_ms(),
            i64::try_from(row.auto_block.duration_ms).unwrap_or(i64::MAX),
            &row.auto_block.source
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// Deletes the automatic blocks that began at `until` or earlier.
pub async fn delete_auto_blocks(
    until: Timestamp,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "delete from block_history where blocked_ms <= $1",
        until.unix_ms()
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn load_known_nodes(tx: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!("select node from machine_seen")
        .fetch_all(tx)
        .await
}

pub async fn insert_known_nodes(
    nodes: &[String],
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into machine_seen (node) select * from unnest($1::text[]) on conflict do nothing",
        nodes
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn load_strategy(tx: &mut PgConnection) -> Result<Option<StrategyRow>, sqlx::Error> {
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

pub async fn set_strategy(row: &StrategyRow, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
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
