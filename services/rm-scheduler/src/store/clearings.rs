//! Table `clearing`: evacuations with their processes.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::{json, read};
use crate::model::Evacuation;

pub async fn load(tx: &mut PgConnection) -> Result<BTreeMap<String, Evacuation>, sqlx::Error> {
    sqlx::query!(r#"select key, body::text as "body!" from clearing"#)
        .fetch_all(tx)
        .await?
        .into_iter()
        .map(|row| Ok((row.key, read(&row.body)?)))
        .collect()
}

/// Writes the given rows, and deletes rows whose value is `None`.
pub async fn write(
    tx: &mut PgConnection,
    clearings: &BTreeMap<String, Option<Evacuation>>,
) -> Result<(), sqlx::Error> {
    if clearings.is_empty() {
        return Ok(());
    }
    let over = clearings.iter().filter(|(_, clearing)| clearing.is_none());
    let over: Vec<String> = over.map(|(key, _)| key.clone()).collect();
    sqlx::query!("delete from clearing where key = any($1)", &over)
        .execute(&mut *tx)
        .await?;
    let there = || {
        clearings
            .iter()
            .filter_map(|(key, it)| Some((key, it.as_ref()?)))
    };
    let bodies: Vec<String> = there().map(|(_, it)| json(it)).collect::<Result<_, _>>()?;
    sqlx::query!(
        "insert into clearing (key, body)
         select new.key, new.body::json from unnest($1::text[], $2::text[]) as new (key, body)
         on conflict (key) do update set body = excluded.body",
        &there().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
        &bodies
    )
    .execute(tx)
    .await
    .map(drop)
}
