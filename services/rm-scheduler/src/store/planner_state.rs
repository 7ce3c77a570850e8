//! Table `carried`: state of the planner that survives a restart.

use sqlx::PgConnection;

use super::{from_json, to_json};
use crate::model::{PlannerStateKey, PlannerStateRow, PlannerStateRows};

pub async fn load(tx: &mut PgConnection) -> Result<PlannerStateRows, sqlx::Error> {
    sqlx::query!(r#"select body::text as "body!" from carried"#)
        .fetch_all(tx)
        .await?
        .into_iter()
        .map(|row| {
            let row: PlannerStateRow = from_json(&row.body)?;
            Ok((row.key(), row))
        })
        .collect()
}

pub async fn upsert(tx: &mut PgConnection, rows: &PlannerStateRows) -> Result<(), sqlx::Error> {
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

pub async fn delete(tx: &mut PgConnection, keys: &[PlannerStateKey]) -> Result<(), sqlx::Error> {
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

fn split_keys<'a>(keys: impl Iterator<Item = &'a PlannerStateKey>) -> (Vec<String>, Vec<String>) {
    keys.map(|(kind, name)| ((*kind).to_owned(), name.clone()))
        .unzip()
}
