//! The table `block_change`: the history of items, with a bounded number of rows.

use hayward_blocklist_api::{BlockChange, BlockEntry, BlockEvent};
use hayward_publication::Moment;
use hayward_vocabulary::Timestamp;
use sqlx::{PgConnection, PgPool};

/// Minimum number of changes that are stored.
const MIN_CHANGES: i64 = 10_000;

/// One row of the table.
#[derive(Debug)]
pub struct ChangeRow {
    /// Revision at which the change becomes visible.
    pub version: u64,
    pub at: Timestamp,
    pub event: BlockEvent,
    pub actor: Option<String>,
    pub reason: Option<String>,
    pub item: BlockEntry,
}

impl ChangeRow {
    /// Returns a change without a caller.
    pub fn new(event: BlockEvent, item: BlockEntry, moment: &Moment) -> Self {
        Self {
            version: moment.revision,
            at: moment.now,
            event,
            actor: None,
            reason: None,
            item,
        }
    }
}

fn event_to_column(event: BlockEvent) -> &'static str {
    match event {
        BlockEvent::Added => "ADDED",
        BlockEvent::Upgraded => "UPGRADED",
        BlockEvent::Merged => "MERGED",
        BlockEvent::Removed => "REMOVED",
        BlockEvent::Expired => "EXPIRED",
        BlockEvent::TrialPassed => "TRIAL_PASSED",
        BlockEvent::TrialUnused => "TRIAL_UNUSED",
        BlockEvent::Unknown => "UNKNOWN",
    }
}

fn parse_event(text: &str) -> BlockEvent {
    match text {
        "ADDED" => BlockEvent::Added,
        "UPGRADED" => BlockEvent::Upgraded,
        "MERGED" => BlockEvent::Merged,
        "REMOVED" => BlockEvent::Removed,
        "EXPIRED" => BlockEvent::Expired,
        "TRIAL_PASSED" => BlockEvent::TrialPassed,
        "TRIAL_UNUSED" => BlockEvent::TrialUnused,
        _ => BlockEvent::Unknown,
    }
}

pub async fn append(changes: &[ChangeRow], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let versions: Vec<i64> = changes.iter().map(|row| to_i64(row.version)).collect();
    let at_ms: Vec<i64> = changes.iter().map(|row| row.at.unix_ms()).collect();
    let events: Vec<String> = changes
        .iter()
        .map(|row| event_to_column(row.event).to_owned())
        .collect();
    let actors: Vec<Option<String>> = changes.iter().map(|row| row.actor.clone()).collect();
    let reasons: Vec<Option<String>> = changes.iter().map(|row| row.reason.clone()).collect();
    // Serialization of an entry cannot fail.
    let item_json = |row: &ChangeRow| serde_json::to_string(&row.item).unwrap_or_default();
    let items: Vec<String> = changes.iter().map(item_json).collect();
    sqlx::query!(
        "insert into block_change (version, at_ms, event, by, why, item)
         select new.version, new.at_ms, new.event, new.by, new.why, new.item::json
           from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
             as new (version, at_ms, event, by, why, item)",
        &versions,
        &at_ms,
        &events,
        &actors as &[Option<String>],
        &reasons as &[Option<String>],
        &items
    )
    .execute(tx)
    .await
    .map(drop)
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Deletes the oldest changes, and stores the last version of which changes were deleted.
pub async fn trim(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "with gone as (
             delete from block_change
              where serial <= (select serial from block_change
                                order by serial desc offset $1 limit 1)
             returning version)
         update block_log
            set forgotten_version = greatest(forgotten_version,
                                             coalesce((select max(version) from gone), 0))",
        MIN_CHANGES
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Returns the changes after a version, in order. There are about `limit` changes, because a
/// version is never split. `None` if some of the changes were deleted.
pub async fn load_changes_after(
    pool: &PgPool,
    after: u64,
    limit: i64,
) -> Result<Option<Vec<(u64, BlockChange)>>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select log.forgotten_version, change.version as "version?", change.at_ms as "at_ms?",
                  change.event as "event?", change.item::text as item
             from block_log log
             left join block_change change
               on change.version > $1
              and change.version <= coalesce(
                      (select version from block_change where version > $1
                        order by version, serial offset $2 limit 1),
                      9223372036854775807)
            order by change.version, change.serial"#,
        to_i64(after),
        limit
    )
    .fetch_all(pool)
    .await?;
    let mut changes = Vec::with_capacity(rows.len());
    for row in rows {
        if row.forgotten_version > to_i64(after) {
            return Ok(None);
        }
        // The row has no change if there is none after the version.
        let (Some(version), Some(at_ms), Some(event), Some(item)) =
            (row.version, row.at_ms, row.event, row.item)
        else {
            continue;
        };
        let item =
            serde_json::from_str(&item).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let change = BlockChange {
            at: Timestamp::from_unix_ms(at_ms),
            event: parse_event(&event),
            by: None,
            why: None,
            item,
        };
        changes.push((u64::try_from(version).unwrap_or(0), change));
    }
    Ok(Some(changes))
}

/// Returns up to `limit` changes with serial numbers below `before`, newest first.
pub async fn load_history(
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
            event: parse_event(&row.event),
            by: row.by,
            why: row.why,
            item,
        };
        changes.push((row.serial, change));
    }
    Ok(changes)
}
