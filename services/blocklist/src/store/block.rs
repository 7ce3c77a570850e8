//! The table `block`: the block or the trial of each key, and its number of removals.

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_api::BlockKind;
use hayward_blocklist_domain::{Action, Block, Canary, KeyState};
use hayward_vocabulary::{Timestamp, WorkId};
use sqlx::PgConnection;

use crate::model::{Key, KeyRecord, parse_kind};

const MARK: &str = "MARK_BLOCKLISTED";
const EVACUATE: &str = "MARK_BLOCKLISTED_AND_EVACUATE_TASKS";

/// One row of the table. A key on trial has the causes and sources of its last block.
#[derive(Debug)]
pub struct BlockRow {
    removal_no: i64,
    /// `None` if the key has no block.
    action: Option<String>,
    /// Texts as a JSON array.
    causes: String,
    /// Texts as a JSON array.
    sources: String,
    start_ms: i64,
    end_ms: Option<i64>,
    updated_ms: i64,
    grace_ms: Option<i64>,
    trial_since_ms: Option<i64>,
    trial_until_ms: Option<i64>,
}

impl BlockRow {
    pub fn from_record(record: &KeyRecord) -> Self {
        let block = record.state.block.as_ref();
        let canary = record.state.canary.as_ref();
        // Serialization of a list of strings cannot fail.
        let to_json = |block_texts: Option<&BTreeSet<String>>,
                       canary_texts: Option<&BTreeSet<String>>| {
            let texts = block_texts.or(canary_texts).cloned().unwrap_or_default();
            serde_json::to_string(&texts).unwrap_or_default()
        };
        let action = |block: &Block| match block.action {
            Action::Mark => MARK.to_owned(),
            Action::Evacuate(_) => EVACUATE.to_owned(),
        };
        let grace_ms = |block: &Block| match block.action {
            // A mark stores the grace period of its pending evacuation.
            Action::Mark => match record.pending_evacuation {
                Some(Action::Evacuate(grace)) => Some(to_i64(grace.0)),
                _ => None,
            },
            Action::Evacuate(grace) => Some(to_i64(grace.0)),
        };
        Self {
            removal_no: i64::try_from(record.state.removal_no).unwrap_or(i64::MAX),
            action: block.map(action),
            causes: to_json(
                block.map(|block| &block.causes),
                canary.map(|canary| &canary.causes),
            ),
            sources: to_json(
                block.map(|block| &block.sources),
                canary.map(|canary| &canary.sources),
            ),
            start_ms: block.map_or(0, |block| block.start.unix_ms()),
            end_ms: block.and_then(|block| block.end).map(Timestamp::unix_ms),
            updated_ms: record.updated_at.unix_ms(),
            grace_ms: block.and_then(grace_ms),
            trial_since_ms: canary.map(|canary| canary.since.unix_ms()),
            trial_until_ms: canary.map(|canary| canary.until.unix_ms()),
        }
    }
}

fn to_i64(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

pub fn kind_to_column(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Node => "NODE",
        BlockKind::Worker => "WORKER",
    }
}

/// Parses the column `job`. An empty text is the whole cluster.
pub fn parse_job(text: &str) -> Result<Option<WorkId>, sqlx::Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let work = WorkId::new(text).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Some(work))
}

/// Parses the texts of a JSON column.
fn parse_texts(column: &str) -> Result<BTreeSet<String>, sqlx::Error> {
    serde_json::from_str(column).map_err(|error| sqlx::Error::Decode(error.into()))
}

pub async fn load_blocks(tx: &mut PgConnection) -> Result<Vec<(Key, KeyRecord)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select kind, identifier, job, removal_no, action, causes::text as "causes!",
                  sources::text as "sources!", start_ms, end_ms, updated_ms, grace_ms,
                  trial_since_ms, trial_until_ms
             from block"#
    )
    .fetch_all(tx)
    .await?;
    let mut blocks = Vec::with_capacity(rows.len());
    for row in rows {
        let decode_error = |detail: String| sqlx::Error::Decode(detail.into());
        let kind =
            parse_kind(&row.kind).ok_or_else(|| decode_error(format!("kind {:?}", row.kind)))?;
        let (causes, sources) = (parse_texts(&row.causes)?, parse_texts(&row.sources)?);
        let grace_ms = row.grace_ms.map_or(0, |ms| u64::try_from(ms).unwrap_or(0));
        let is_mark = row.action.as_deref() == Some(MARK);
        // The grace period of a mark belongs to its pending evacuation.
        let pending_evacuation = is_mark.then_some(row.grace_ms).flatten();
        let pending_evacuation = pending_evacuation.map(|_| Action::evacuate(grace_ms));
        let mut state = KeyState {
            removal_no: u64::try_from(row.removal_no).unwrap_or(0),
            ..KeyState::default()
        };
        if let Some(action) = row.action {
            state.block = Some(Block {
                action: if action == MARK {
                    Action::Mark
                } else {
                    Action::evacuate(grace_ms)
                },
                causes,
                start: Timestamp::from_unix_ms(row.start_ms),
                end: row.end_ms.map(Timestamp::from_unix_ms),
                sources,
            });
        } else if let (Some(since), Some(until)) = (row.trial_since_ms, row.trial_until_ms) {
            state.canary = Some(Canary {
                since: Timestamp::from_unix_ms(since),
                until: Timestamp::from_unix_ms(until),
                causes,
                sources,
            });
        }
        let key = Key {
            kind,
            identifier: row.identifier,
            job: parse_job(&row.job)?,
        };
        let record = KeyRecord {
            state,
            updated_at: Timestamp::from_unix_ms(row.updated_ms),
            pending_evacuation,
            next_check_at: None,
        };
        blocks.push((key, record));
    }
    Ok(blocks)
}

/// Writes new rows, and deletes those that are `None`.
pub async fn write(
    blocks: BTreeMap<Key, Option<BlockRow>>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let (mut deleted, mut upserts) = (Vec::new(), Vec::new());
    for (key, row) in blocks {
        match row {
            Some(row) => upserts.push((key, row)),
            None => deleted.push(key),
        }
    }
    if !upserts.is_empty() {
        upsert(&upserts, tx).await?;
    }
    if !deleted.is_empty() {
        delete(&deleted, tx).await?;
    }
    Ok(())
}

/// Returns the columns of keys: kind, identifier and job.
fn key_columns<'a>(keys: impl Iterator<Item = &'a Key>) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut kinds, mut identifiers, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        kinds.push(kind_to_column(key.kind).to_owned());
        identifiers.push(key.identifier.clone());
        jobs.push(
            key.job
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        );
    }
    (kinds, identifiers, jobs)
}

async fn upsert(rows: &[(Key, BlockRow)], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (kinds, identifiers, jobs) = key_columns(rows.iter().map(|(key, _)| key));
    let removal_numbers: Vec<i64> = rows.iter().map(|(_, row)| row.removal_no).collect();
    let actions: Vec<Option<String>> = rows.iter().map(|(_, row)| row.action.clone()).collect();
    let causes: Vec<String> = rows.iter().map(|(_, row)| row.causes.clone()).collect();
    let sources: Vec<String> = rows.iter().map(|(_, row)| row.sources.clone()).collect();
    let starts: Vec<i64> = rows.iter().map(|(_, row)| row.start_ms).collect();
    let ends: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.end_ms).collect();
    let updates: Vec<i64> = rows.iter().map(|(_, row)| row.updated_ms).collect();
    let graces: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.grace_ms).collect();
    let trial_starts: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.trial_since_ms).collect();
    let trial_ends: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.trial_until_ms).collect();
    sqlx::query!(
        "insert into block (kind, identifier, job, removal_no, action, causes, sources, start_ms,
                            end_ms, updated_ms, grace_ms, trial_since_ms, trial_until_ms)
         select new.kind, new.identifier, new.job, new.removal_no, new.action, new.causes::json,
                new.sources::json, new.start_ms, new.end_ms, new.updated_ms, new.grace_ms,
                new.trial_since_ms, new.trial_until_ms
           from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[],
                       $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
                       $12::bigint[], $13::bigint[])
             as new (kind, identifier, job, removal_no, action, causes, sources, start_ms, end_ms,
                     updated_ms, grace_ms, trial_since_ms, trial_until_ms)
         on conflict (kind, identifier, job) do update
            set removal_no = excluded.removal_no, action = excluded.action,
                causes = excluded.causes, sources = excluded.sources,
                start_ms = excluded.start_ms, end_ms = excluded.end_ms,
                updated_ms = excluded.updated_ms, grace_ms = excluded.grace_ms,
                trial_since_ms = excluded.trial_since_ms,
                trial_until_ms = excluded.trial_until_ms",
        &kinds,
        &identifiers,
        &jobs,
        &removal_numbers,
        &actions as &[Option<String>],
        &causes,
        &sources,
        &starts,
        &ends as &[Option<i64>],
        &updates,
        &graces as &[Option<i64>],
        &trial_starts as &[Option<i64>],
        &trial_ends as &[Option<i64>]
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn delete(keys: &[Key], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (kinds, identifiers, jobs) = key_columns(keys.iter());
    sqlx::query!(
        "delete from block
          using unnest($1::text[], $2::text[], $3::text[]) as old (kind, identifier, job)
          where block.kind = old.kind and block.identifier = old.identifier
            and block.job = old.job",
        &kinds,
        &identifiers,
        &jobs
    )
    .execute(tx)
    .await
    .map(drop)
}
