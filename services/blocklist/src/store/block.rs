//! The table `block`.

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_api::BlockKind;
use hayward_blocklist_domain::{Action, Item, Slot, Trial};
use hayward_vocabulary::{Timestamp, WorkId};
use sqlx::PgConnection;

use crate::model::{Block, Key, kind};

const MARK: &str = "MARK_BLOCKLISTED";
const EVACUATE: &str = "MARK_BLOCKLISTED_AND_EVACUATE_TASKS";

/// A key as it is written.
#[derive(Debug)]
pub struct BlockRow {
    removal_no: i64,
    action: Option<String>,
    causes: String,
    sources: String,
    start_ms: i64,
    end_ms: Option<i64>,
    updated_ms: i64,
    grace_ms: Option<i64>,
    trial_since_ms: Option<i64>,
    trial_until_ms: Option<i64>,
}

impl BlockRow {
    pub fn of(block: &Block) -> Self {
        let item = block.slot.item.as_ref();
        let trial = block.slot.trial.as_ref();
        // Lists of texts always have a JSON form.
        let texts = |of_item: Option<&BTreeSet<String>>, of_trial: Option<&BTreeSet<String>>| {
            let texts = of_item.or(of_trial).cloned().unwrap_or_default();
            serde_json::to_string(&texts).unwrap_or_default()
        };
        let word = |item: &Item| match item.action {
            Action::Mark => MARK.to_owned(),
            Action::Evacuate(_) => EVACUATE.to_owned(),
        };
        let grace_ms = |item: &Item| match item.action {
            // Of a mark: the evacuation that it is owed.
            Action::Mark => match block.owed {
                Some(Action::Evacuate(grace)) => Some(stored(grace.0)),
                _ => None,
            },
            Action::Evacuate(grace) => Some(stored(grace.0)),
        };
        Self {
            removal_no: i64::try_from(block.slot.removal_no).unwrap_or(i64::MAX),
            action: item.map(word),
            causes: texts(
                item.map(|item| &item.causes),
                trial.map(|trial| &trial.causes),
            ),
            sources: texts(
                item.map(|item| &item.sources),
                trial.map(|trial| &trial.sources),
            ),
            start_ms: item.map_or(0, |item| item.start.unix_ms()),
            end_ms: item.and_then(|item| item.end).map(Timestamp::unix_ms),
            updated_ms: block.updated.unix_ms(),
            grace_ms: item.and_then(grace_ms),
            trial_since_ms: trial.map(|trial| trial.since.unix_ms()),
            trial_until_ms: trial.map(|trial| trial.until.unix_ms()),
        }
    }
}

fn stored(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

pub fn word(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Node => "NODE",
        BlockKind::Worker => "WORKER",
    }
}

/// The work of a scope, as rows have it: empty is the cluster.
pub fn job(text: &str) -> Result<Option<WorkId>, sqlx::Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let work = WorkId::new(text).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Some(work))
}

pub async fn load_blocks(tx: &mut PgConnection) -> Result<Vec<(Key, Block)>, sqlx::Error> {
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
        let decode = |what: String| sqlx::Error::Decode(what.into());
        let texts = |text: &str| {
            serde_json::from_str::<BTreeSet<String>>(text).map_err(|e| decode(e.to_string()))
        };
        let kind = kind(&row.kind).ok_or_else(|| decode(format!("kind {:?}", row.kind)))?;
        let (causes, sources) = (texts(&row.causes)?, texts(&row.sources)?);
        let grace = row.grace_ms.map_or(0, |ms| u64::try_from(ms).unwrap_or(0));
        let is_mark = row.action.as_deref() == Some(MARK);
        let owed = is_mark.then_some(row.grace_ms).flatten();
        let owed = owed.map(|_| Action::evacuate(grace));
        let mut slot = Slot {
            removal_no: u64::try_from(row.removal_no).unwrap_or(0),
            ..Slot::default()
        };
        if let Some(action) = row.action {
            slot.item = Some(Item {
                action: if action == MARK {
                    Action::Mark
                } else {
                    Action::evacuate(grace)
                },
                causes,
                start: Timestamp::from_unix_ms(row.start_ms),
                end: row.end_ms.map(Timestamp::from_unix_ms),
                sources,
            });
        } else if let (Some(since), Some(until)) = (row.trial_since_ms, row.trial_until_ms) {
            slot.trial = Some(Trial {
                since: Timestamp::from_unix_ms(since),
                until: Timestamp::from_unix_ms(until),
                causes,
                sources,
            });
        }
        let key = Key {
            kind,
            identifier: row.identifier,
            job: job(&row.job)?,
        };
        let updated = Timestamp::from_unix_ms(row.updated_ms);
        blocks.push((
            key,
            Block {
                slot,
                updated,
                owed,
                due: None,
            },
        ));
    }
    Ok(blocks)
}

pub async fn write(
    blocks: BTreeMap<Key, Option<BlockRow>>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let (mut gone, mut kept) = (Vec::new(), Vec::new());
    for (key, row) in blocks {
        match row {
            Some(row) => kept.push((key, row)),
            None => gone.push(key),
        }
    }
    if !kept.is_empty() {
        upsert(&kept, tx).await?;
    }
    if !gone.is_empty() {
        delete(&gone, tx).await?;
    }
    Ok(())
}

/// Keys as the three columns of their rows.
fn columns<'a>(keys: impl Iterator<Item = &'a Key>) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut kinds, mut identifiers, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        kinds.push(word(key.kind).to_owned());
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
    let (kinds, identifiers, jobs) = columns(rows.iter().map(|(key, _)| key));
    let numbers: Vec<i64> = rows.iter().map(|(_, row)| row.removal_no).collect();
    let actions: Vec<Option<String>> = rows.iter().map(|(_, row)| row.action.clone()).collect();
    let causes: Vec<String> = rows.iter().map(|(_, row)| row.causes.clone()).collect();
    let sources: Vec<String> = rows.iter().map(|(_, row)| row.sources.clone()).collect();
    let starts: Vec<i64> = rows.iter().map(|(_, row)| row.start_ms).collect();
    let ends: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.end_ms).collect();
    let updated: Vec<i64> = rows.iter().map(|(_, row)| row.updated_ms).collect();
    let graces: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.grace_ms).collect();
    let since: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.trial_since_ms).collect();
    let until: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.trial_until_ms).collect();
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
        &numbers,
        &actions as &[Option<String>],
        &causes,
        &sources,
        &starts,
        &ends as &[Option<i64>],
        &updated,
        &graces as &[Option<i64>],
        &since as &[Option<i64>],
        &until as &[Option<i64>]
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn delete(keys: &[Key], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (kinds, identifiers, jobs) = columns(keys.iter());
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
