//! Database queries of a publication: its entries, and the positions in followed publications of
//! neighbours.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use sqlx::PgConnection;

use crate::Cursor;
use crate::publisher::Entry;

/// One stored entry. The body is `None` for a removal.
pub struct StoredEntry {
    pub publication: String,
    pub scope: String,
    pub key: String,
    pub revision: i64,
    pub body: Option<String>,
}

/// Loads all entries, in order of revision.
pub async fn load_entries(tx: &mut PgConnection) -> Result<Vec<StoredEntry>, sqlx::Error> {
    sqlx::query_as!(
        StoredEntry,
        "select publication, scope, key, revision, body::text from entry order by revision"
    )
    .fetch_all(tx)
    .await
}

/// Inserts or replaces entries, all at the same revision.
pub async fn write_entries(
    tx: &mut PgConnection,
    revision: i64,
    entries: &[Entry],
) -> Result<(), sqlx::Error> {
    let column = |pick: fn(&Entry) -> &str| -> Vec<String> {
        entries.iter().map(|entry| pick(entry).to_owned()).collect()
    };
    let bodies: Vec<Option<String>> = entries
        .iter()
        .map(|entry| entry.body.as_deref().map(RawValue::get).map(str::to_owned))
        .collect();
    sqlx::query!(
        "insert into entry (publication, scope, key, revision, body)
         select new.publication, new.scope, new.key, $5, new.body::json
           from unnest($1::text[], $2::text[], $3::text[], $4::text[])
             as new (publication, scope, key, body)
         on conflict (publication, scope, key)
         do update set revision = excluded.revision, body = excluded.body",
        &column(|entry| entry.key.publication),
        &column(|entry| &entry.key.scope),
        &column(|entry| &entry.key.key),
        &bodies as &[Option<String>],
        revision
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Deletes the removals up to a revision, which no reader needs any more.
pub async fn prune_removals(tx: &mut PgConnection, revision: i64) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "delete from entry where body is null and revision <= $1",
        revision
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Loads the position up to which each neighbour was read.
pub async fn load_followed(tx: &mut PgConnection) -> Result<BTreeMap<String, Cursor>, sqlx::Error> {
    let rows = sqlx::query!("select source, lineage, revision from followed")
        .fetch_all(tx)
        .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let revision = u64::try_from(row.revision).unwrap_or(0);
            (
                row.source,
                Cursor {
                    lineage: row.lineage,
                    revision,
                },
            )
        })
        .collect())
}

pub async fn write_followed(
    tx: &mut PgConnection,
    positions: &BTreeMap<&'static str, Cursor>,
) -> Result<(), sqlx::Error> {
    for (source, cursor) in positions {
        sqlx::query!(
            "insert into followed (source, lineage, revision) values ($1, $2, $3)
             on conflict (source)
             do update set lineage = excluded.lineage, revision = excluded.revision",
            source,
            cursor.lineage,
            i64::try_from(cursor.revision).unwrap_or(i64::MAX)
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}
