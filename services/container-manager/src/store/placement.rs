//! The tables `placement` and `deployment`.

use std::collections::{BTreeMap, BTreeSet};

use hayward_container_manager_placement::Placement;
use hayward_vocabulary::{NodeName, Timestamp, WorkId};
use sqlx::PgConnection;

use super::to_i64;
use crate::model::{Deployment, StoredPlacements};

/// Loads all placements and deployments, and the last host of each process of a service.
pub async fn load(tx: &mut PgConnection) -> Result<StoredPlacements, sqlx::Error> {
    let decode_error = |error: serde_json::Error| sqlx::Error::Decode(error.into());
    let placements = sqlx::query!(r#"select body::text as "body!" from placement"#)
        .fetch_all(&mut *tx)
        .await?
        .into_iter()
        .map(|row| serde_json::from_str(&row.body).map_err(decode_error))
        .collect::<Result<_, _>>()?;
    let deployments = sqlx::query!("select id, service, user_name, ended_at_ms from deployment")
        .fetch_all(&mut *tx)
        .await?
        .into_iter()
        .map(|row| {
            let name_error = |error: hayward_vocabulary::BadName| sqlx::Error::Decode(error.into());
            let deployment = Deployment {
                service: row.service.try_into().map_err(name_error)?,
                user: row.user_name.try_into().map_err(name_error)?,
                ended_at: row.ended_at_ms.map(Timestamp::from_unix_ms),
            };
            Ok((row.id, deployment))
        })
        .collect::<Result<_, sqlx::Error>>()?;
    let last_hosts = sqlx::query!(
        "select distinct on (work) work, node
           from container
          where kind = 'service' and launched is not null
          order by work, ordered_at_ms desc"
    )
    .fetch_all(tx)
    .await?;
    let last_hosts = last_hosts
        .into_iter()
        .filter_map(|row| Some((WorkId::new(row.work).ok()?, NodeName::new(row.node).ok()?)));
    Ok(StoredPlacements {
        placements,
        deployments,
        last_hosts: last_hosts.collect(),
    })
}

/// Writes placements. Placements that are not active are written first, because the unique index
/// allows one active placement per processor.
pub async fn upsert(
    tx: &mut PgConnection,
    placements: &BTreeMap<String, Placement>,
) -> Result<(), sqlx::Error> {
    for is_active in [false, true] {
        let matches = |it: &&Placement| it.status_code.is_active() == is_active;
        let rows: Vec<&Placement> = placements.values().filter(matches).collect();
        if rows.is_empty() {
            continue;
        }
        let text_column = |get: fn(&Placement) -> &str| -> Vec<String> {
            rows.iter().map(|it| get(it).to_owned()).collect()
        };
        let bodies: Vec<String> = rows
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()
            .map_err(|error| sqlx::Error::Encode(error.into()))?;
        sqlx::query!(
            "insert into placement (uuid, deployment, processor, seq, status, under_parent,
                                    updated_at_ms, body)
             select new.uuid, new.deployment, new.processor, new.seq, new.status,
                    new.under_parent, new.updated_at_ms, new.body::json
               from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[],
                           $6::boolean[], $7::bigint[], $8::text[])
                 as new (uuid, deployment, processor, seq, status, under_parent, updated_at_ms,
                         body)
             on conflict (uuid) do update
                set status = excluded.status, under_parent = excluded.under_parent,
                    updated_at_ms = excluded.updated_at_ms, body = excluded.body
              where placement.status not in ('SUCCEEDED', 'FAILED', 'BAD_REQUEST')",
            &text_column(|it| &it.uuid),
            &text_column(|it| &it.deployment_id),
            &text_column(|it| it.processor_id.as_str()),
            &rows.iter().map(|it| to_i64(it.seq)).collect::<Vec<_>>(),
            &text_column(|it| it.status_code.as_str()),
            &rows
                .iter()
                .map(|it| it.progress.is_second_takeover_child)
                .collect::<Vec<_>>(),
            &rows
                .iter()
                .map(|it| it.updated_at.unix_ms())
                .collect::<Vec<_>>(),
            &bodies,
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub async fn delete(tx: &mut PgConnection, deleted: &BTreeSet<String>) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    let uuids: Vec<String> = deleted.iter().cloned().collect();
    sqlx::query!("delete from placement where uuid = any($1)", &uuids)
        .execute(tx)
        .await
        .map(drop)
}

pub async fn write_deployments(
    tx: &mut PgConnection,
    changed: &BTreeMap<String, Deployment>,
    deleted: &BTreeSet<String>,
) -> Result<(), sqlx::Error> {
    if !deleted.is_empty() {
        let ids: Vec<String> = deleted.iter().cloned().collect();
        sqlx::query!("delete from deployment where id = any($1)", &ids)
            .execute(&mut *tx)
            .await?;
    }
    if changed.is_empty() {
        return Ok(());
    }
    let rows = || changed.values();
    let ended_at_ms = |it: &Deployment| it.ended_at.map(Timestamp::unix_ms);
    let ended_at_ms: Vec<Option<i64>> = rows().map(ended_at_ms).collect();
    sqlx::query!(
        "insert into deployment (id, service, user_name, ended_at_ms)
         select new.id, new.service, new.user_name, new.ended_at_ms
           from unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
             as new (id, service, user_name, ended_at_ms)
         on conflict (id) do update set ended_at_ms = excluded.ended_at_ms",
        &changed.keys().cloned().collect::<Vec<_>>(),
        &rows().map(|it| it.service.to_string()).collect::<Vec<_>>(),
        &rows().map(|it| it.user.to_string()).collect::<Vec<_>>(),
        &ended_at_ms as &[Option<i64>],
    )
    .execute(tx)
    .await
    .map(drop)
}
