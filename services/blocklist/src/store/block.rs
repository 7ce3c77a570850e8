//! The table `block`.

use std::collections::{BTreeMap, BTreeSet};

use hayward_blocklist_api::BlockKind;
use hayward_blocklist_domain::{Action, Item, Slot};
use hayward_vocabulary::Timestamp;
use sqlx::PgConnection;

use crate::ledger::{Block, Key, kind};

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
}

impl BlockRow {
    pub fn of(block: &Block) -> Self {
        let item = block.slot.item.as_ref();
        let texts = |pick: fn(&Item) -> &BTreeSet<String>| {
            let texts = item.map(pick).cloned().unwrap_or_default();
            // Lists of texts always have a JSON form.
            serde_json::to_string(&texts).unwrap_or_default()
        };
        let word = |item: &Item| match item.action {
            Action::Mark => MARK.to_owned(),
            Action::Evacuate => EVACUATE.to_owned(),
        };
        Self {
            removal_no: i64::try_from(block.slot.removal_no).unwrap_or(i64::MAX),
            action: item.map(word),
            causes: texts(|item| &item.causes),
            sources: texts(|item| &item.sources),
            start_ms: item.map_or(0, |item| item.start.unix_ms()),
            end_ms: item.and_then(|item| item.end).map(Timestamp::unix_ms),
            updated_ms: block.updated.unix_ms(),
        }
    }
}

fn word(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Node => "NODE",
        BlockKind::Worker => "WORKER",
    }
}

pub async fn load_blocks(tx: &mut PgConnection) -> Result<Vec<(Key, Block)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select kind, identifier, removal_no, action, causes::text as "causes!",
                  sources::text as "sources!", start_ms, end_ms, updated_ms
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
        let item = match row.action {
            None => None,
            Some(action) => Some(Item {
                action: if action == MARK {
                    Action::Mark
                } else {
                    Action::Evacuate
                },
                causes: texts(&row.causes)?,
                start: Timestamp::from_unix_ms(row.start_ms),
                end: row.end_ms.map(Timestamp::from_unix_ms),
                sources: texts(&row.sources)?,
            }),
        };
        let slot = Slot {
            removal_no: u64::try_from(row.removal_no).unwrap_or(0),
            item,
        };
        let updated = Timestamp::from_unix_ms(row.updated_ms);
        blocks.push((
            (kind, row.identifier),
            Block {
                slot,
                updated,
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

async fn upsert(rows: &[(Key, BlockRow)], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let kinds: Vec<String> = rows.iter().map(|(key, _)| word(key.0).to_owned()).collect();
    let identifiers: Vec<String> = rows.iter().map(|(key, _)| key.1.clone()).collect();
    let numbers: Vec<i64> = rows.iter().map(|(_, row)| row.removal_no).collect();
    let actions: Vec<Option<String>> = rows.iter().map(|(_, row)| row.action.clone()).collect();
    let causes: Vec<String> = rows.iter().map(|(_, row)| row.causes.clone()).collect();
    let sources: Vec<String> = rows.iter().map(|(_, row)| row.sources.clone()).collect();
    let starts: Vec<i64> = rows.iter().map(|(_, row)| row.start_ms).collect();
    let ends: Vec<Option<i64>> = rows.iter().map(|(_, row)| row.end_ms).collect();
    let updated: Vec<i64> = rows.iter().map(|(_, row)| row.updated_ms).collect();
    sqlx::query!(
        "insert into block (kind, identifier, removal_no, action, causes, sources, start_ms,
                            end_ms, updated_ms)
         select new.kind, new.identifier, new.removal_no, new.action, new.causes::json,
                new.sources::json, new.start_ms, new.end_ms, new.updated_ms
           from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[],
                       $7::bigint[], $8::bigint[], $9::bigint[])
             as new (kind, identifier, removal_no, action, causes, sources, start_ms, end_ms,
                     updated_ms)
         on conflict (kind, identifier) do update
            set removal_no = excluded.removal_no, action = excluded.action,
                causes = excluded.causes, sources = excluded.sources,
                start_ms = excluded.start_ms, end_ms = excluded.end_ms,
                updated_ms = excluded.updated_ms",
        &kinds,
        &identifiers,
        &numbers,
        &actions as &[Option<String>],
        &causes,
        &sources,
        &starts,
        &ends as &[Option<i64>],
        &updated
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn delete(keys: &[Key], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let kinds: Vec<String> = keys.iter().map(|key| word(key.0).to_owned()).collect();
    let identifiers: Vec<String> = keys.iter().map(|key| key.1.clone()).collect();
    sqlx::query!(
        "delete from block using unnest($1::text[], $2::text[]) as old (kind, identifier)
          where block.kind = old.kind and block.identifier = old.identifier",
        &kinds,
        &identifiers
    )
    .execute(tx)
    .await
    .map(drop)
}
