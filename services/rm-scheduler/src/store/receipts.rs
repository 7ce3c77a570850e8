//! Table `receipt`: preemptions with their outcome.

use std::collections::BTreeMap;

use hayward_vocabulary::Receipt;
use sqlx::PgConnection;

use super::{from_json, signed, to_json, unsigned};

/// Maximum number of stored receipts.
pub const MAX_STORED: u64 = 10_000;

pub async fn load(tx: &mut PgConnection) -> Result<BTreeMap<u64, Receipt>, sqlx::Error> {
    sqlx::query!(r#"select number, body::text as "body!" from receipt"#)
        .fetch_all(tx)
        .await?
        .into_iter()
        .map(|row| Ok((unsigned(row.number), from_json(&row.body)?)))
        .collect()
}

pub async fn upsert(
    tx: &mut PgConnection,
    receipts: &BTreeMap<u64, Receipt>,
) -> Result<(), sqlx::Error> {
    let Some((newest, _)) = receipts.last_key_value() else {
        return Ok(());
    };
    let bodies: Vec<String> = receipts.values().map(to_json).collect::<Result<_, _>>()?;
    sqlx::query!(
        "insert into receipt (number, body)
         select new.number, new.body::json
           from unnest($1::bigint[], $2::text[]) as new (number, body)
         on conflict (number) do update set body = excluded.body",
        &receipts.keys().copied().map(signed).collect::<Vec<_>>(),
        &bodies
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "delete from receipt where number <= $1",
        signed(*newest) - signed(MAX_STORED)
    )
    .execute(tx)
    .await
    .map(drop)
}
