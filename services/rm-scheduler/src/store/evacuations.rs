//! Table `clearing`: evacuations with their processes. The key of a row is the key of the block, or
//! `drain/NAME`.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::{from_json, to_json};
use crate::model::Evacuation;

pub async fn load(tx: &mut PgConnection) -> Result<BTreeMap<String, Evacuation>, sqlx::Error> {
    sqlx::query!(r#"select key, body::text as "body!" from clearing"#)
        .fetch_all(tx)
        .await?
        .into_iter()
        .map(|row| Ok((row.key, from_json(&row.body)?)))
        .collect()
}

/// Writes the given rows, and deletes rows whose value is `None`.
pub async fn write(
    tx: &mut PgConnection,
    evacuations: &BTreeMap<String, Option<Evacuation>>,
) -> Result<(), sqlx::Error> {
    if evacuations.is_empty() {
        return Ok(());
    }
    let deleted = evacuations
        .iter()
        .filter(|(_, evacuation)| evacuation.is_none());
    let deleted: Vec<String> = deleted.map(|(key, _)| key.clone()).collect();
    sqlx::query!("delete from clearing where key = any($1)", &deleted)
        .execute(&mut *tx)
        .await?;
    let present = || {
        evacuations
            .iter()
            .filter_map(|(key, it)| Some((key, it.as_ref()?)))
    };
    let bodies: Vec<String> = present()
        .map(|(_, it)| to_json(it))
        .collect::<Result<_, _>>()?;
    sqlx::query!(
        "insert into clearing (key, body)
         select new.key, new.body::json from unnest($1::text[], $2::text[]) as new (key, body)
         on conflict (key) do update set body = excluded.body",
        &present().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
        &bodies
    )
    .execute(tx)
    .await
    .map(drop)
}
