//! The table `block_change`: who blocked what and how it ended, bounded.

use hayward_blocklist_api::{BlockChange, BlockEntry, BlockEvent};
use hayward_vocabulary::Timestamp;
use sqlx::{PgConnection, PgPool};

/// Changes kept at least.
const KEPT: i64 = 10_000;

#[derive(Debug)]
pub struct ChangeRow {
    pub at: Timestamp,
    pub event: BlockEvent,
    pub by: Option<String>,
    pub why: Option<String>,
    pub item: BlockEntry,
}

fn word(event: BlockEvent) -> &'static str {
    match event {
        BlockEvent::Added => "ADDED",
        BlockEvent::Upgraded => "UPGRADED",
        BlockEvent::Merged => "MERGED",
        BlockEvent::Removed => "REMOVED",
        BlockEvent::Expired => "EXPIRED",
        BlockEvent::Unknown => "UNKNOWN",
    }
}

fn read(text: &str) -> BlockEvent {
    match text {
        "ADDED" => BlockEvent::Added,
        "UPGRADED" => BlockEvent::Upgraded,
        "MERGED" => BlockEvent::Merged,
        "REMOVED" => BlockEvent::Removed,
        "EXPIRED" => BlockEvent::Expired,
        _ => BlockEvent::Unknown,
    }
}

pub async fn append(changes: &[ChangeRow], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let at_ms: Vec<i64> = changes.iter().map(|row| row.at.unix_ms()).collect();
    let events: Vec<String> = changes
        .iter()
        .map(|row| word(row.event).to_owned())
        .collect();
    let by: Vec<Option<String>> = changes.iter().map(|row| row.by.clone()).collect();
    let why: Vec<Option<String>> = changes.iter().map(|row| row.why.clone()).collect();
    // Texts, numbers and lists of texts always have a JSON form.
    let json = |row: &ChangeRow| serde_json::to_string(&row.item).unwrap_or_default();
    let items: Vec<String> = changes.iter().map(json).collect();
    sqlx::query!(
        "insert into block_change (at_ms, event, by, why, item)
         select new.at_ms, new.event, new.by, new.why, new.item::json
           from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
             as new (at_ms, event, by, why, item)",
        &at_ms,
        &events,
        &by as &[Option<String>],
        &why as &[Option<String>],
        &items
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn trim(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "delete from block_change
          where serial <= (select serial from block_change order by serial desc offset $1 limit 1)",
        KEPT
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Up to `limit` changes older than `before`, newest first, each with its serial.
pub async fn history(
    pool: &PgPool,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<(i64, BlockChange)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select serial, at_ms, event, by, why, item::text as "item!" from block_change
            where serial < $1 order by serial desc limit $2"#,
        before.unwrap_or(i64::MAX),
        limit
    )
    .fetch_all(pool)
    .await?;
    let mut changes = Vec::with_capacity(rows.len());
    for row in rows {
        let item =
            serde_json::from_str(&row.item).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let at = Timestamp::from_unix_ms(row.at_ms);
        let change = BlockChange {
            at,
            event: read(&row.event),
            by: row.by,
            why: row.why,
            item,
        };
        changes.push((row.serial, change));
    }
    Ok(changes)
}
