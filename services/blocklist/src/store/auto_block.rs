//! The table `block_history`: past automatic blocks, which make the next block of a key longer.

use hayward_vocabulary::Timestamp;
use sqlx::PgConnection;

use super::block::{kind_to_column, parse_job};
use crate::model::{AutoBlock, Key, parse_kind};

/// An automatic block of a key.
#[derive(Debug, Clone)]
pub struct AutoBlockRow {
    pub key: Key,
    pub auto_block: AutoBlock,
}

pub async fn load(tx: &mut PgConnection) -> Result<Vec<AutoBlockRow>, sqlx::Error> {
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

pub async fn append(rows: &[AutoBlockRow], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
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
pub async fn delete_until(until: Timestamp, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "delete from block_history where blocked_ms <= $1",
        until.unix_ms()
    )
    .execute(tx)
    .await
    .map(drop)
}
