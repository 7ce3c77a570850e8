//! Table `carried`: the state that a round passes to the next one, and further state of rounds.

use sqlx::PgConnection;

use super::{from_json, to_json};
use crate::model::{CarriedKey, CarriedRow, CarriedRows};

pub async fn load(tx: &mut PgConnection) -> Result<CarriedRows, sqlx::Error> {
    sqlx::query!(r#"select body::text as "body!" from carried"#)
        .fetch_all(tx)
        .await?
        .into_iter()
        .map(|row| {
            let row: CarriedRow = from_json(&row.body)?;
            Ok((row.key(), row))
        })
        .collect()
}

pub async fn upsert(tx: &mut PgConnection, rows: &CarriedRows) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let (kinds, names) = split_keys(rows.keys());
    let bodies: Vec<String> = rows.values().map(to_json).collect::<Result<_, _>>()?;
    sqlx::query!(
        "insert into carried (kind, name, body)
         select new.kind, new.name, new.body::json
           from unnest($1::text[], $2::text[], $3::text[]) as new (kind, name, body)
         on conflict (kind, name) do update set body = excluded.body",
        &kinds,
        &names,
        &bodies
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete(tx: &mut PgConnection, keys: &[CarriedKey]) -> Result<(), sqlx::Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let (kinds, names) = split_keys(keys.iter());
    sqlx::query!(
        "delete from carried using unnest($1::text[], $2::text[]) as old (kind, name)
          where carried.kind = old.kind and carried.name = old.name",
        &kinds,
        &names
    )
    .execute(tx)
    .await
    .map(drop)
}

fn split_keys<'a>(keys: impl Iterator<Item = &'a CarriedKey>) -> (Vec<String>, Vec<String>) {
    keys.map(|(kind, name)| ((*kind).to_owned(), name.clone()))
        .unzip()
}
