//! The tables `block_history`, `machine_seen` and `strategy`: what a judgement rests on besides
//! facts.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;

use super::block::{job, word};
use crate::model::{Key, Past, kind};

/// An automatic block that began.
#[derive(Debug, Clone)]
pub struct PastRow {
    pub key: Key,
    pub past: Past,
}

/// A strategy somebody chose.
#[derive(Debug, Clone)]
pub struct StrategyRow {
    pub name: String,
    pub parameters: BTreeMap<String, Value>,
    pub by: String,
    pub at: Timestamp,
}

pub async fn load_past(tx: &mut PgConnection) -> Result<Vec<PastRow>, sqlx::Error> {
    let rows = sqlx::query!(
        "select kind, identifier, job, blocked_ms, duration_ms, source
           from block_history order by blocked_ms"
    )
    .fetch_all(tx)
    .await?;
    let mut past = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(kind) = kind(&row.kind) else {
            continue;
        };
        past.push(PastRow {
            key: Key {
                kind,
                identifier: row.identifier,
                job: job(&row.job)?,
            },
            past: Past {
                at: Timestamp::from_unix_ms(row.blocked_ms),
                duration_ms: u64::try_from(row.duration_ms).unwrap_or(0),
                source: row.source,
            },
        });
    }
    Ok(past)
}

pub async fn append_past(rows: &[PastRow], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    for row in rows {
        sqlx::query!(
            "insert into block_history (kind, identifier, job, blocked_ms, duration_ms, source)
             values ($1, $2, $3, $4, $5, $6)",
            word(row.key.kind),
            &row.key.identifier,
            row.key
                .job
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            row.past.at.unix_ms(),
            i64::try_from(row.past.duration_ms).unwrap_or(i64::MAX),
            &row.past.source
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub async fn forget_past(before: Timestamp, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "delete from block_history where blocked_ms <= $1",
        before.unix_ms()
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn load_machines(tx: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!("select node from machine_seen")
        .fetch_all(tx)
        .await
}

pub async fn remember_machines(nodes: &[String], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
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
            by: row.chosen_by,
            at: Timestamp::from_unix_ms(row.chosen_ms),
        })
    })
    .transpose()
}

pub async fn choose(row: &StrategyRow, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    // Parameters were read from JSON, so they have a JSON form.
    let parameters = serde_json::to_string(&row.parameters).unwrap_or_default();
    sqlx::query!(
        "insert into strategy (name, parameters, chosen_by, chosen_ms)
         values ($1, $2::text::json, $3, $4)
         on conflict (one) do update
            set name = excluded.name, parameters = excluded.parameters,
                chosen_by = excluded.chosen_by, chosen_ms = excluded.chosen_ms",
        &row.name,
        &parameters,
        &row.by,
        row.at.unix_ms()
    )
    .execute(tx)
    .await
    .map(drop)
}
