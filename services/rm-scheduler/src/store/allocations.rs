//! Tables `allocation` and `incarnation`: allocations, and the last attempt number of each work.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::AllocationEntry;
use hayward_vocabulary::{AllocationId, WorkId};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::{from_json, signed, to_json, unsigned};
use crate::model::AllocationRecord;

/// Fields of the column `body` that are not published.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct PrivateFields {
    #[serde(default)]
    gpus: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<u64>,
    #[serde(default, rename = "within", skip_serializing_if = "Option::is_none")]
    trace_parent: Option<String>,
}

/// Returns the published entry and the private fields as one JSON object. The two objects are
/// joined as text, because the entry contains raw JSON, which serde does not flatten.
fn to_body(record: &AllocationRecord) -> Result<String, sqlx::Error> {
    let entry = to_json(&record.entry)?;
    let private = PrivateFields {
        gpus: record.gpus.clone(),
        group: record.group.clone(),
        trial: record.trial,
        trace_parent: record.trace_parent.clone(),
    };
    if private == PrivateFields::default() {
        return Ok(entry);
    }
    let private = to_json(&private)?;
    // The closing brace of the first object and the opening brace of the second one are left out.
    Ok(format!("{},{}", &entry[..entry.len() - 1], &private[1..]))
}

pub async fn load(
    tx: &mut PgConnection,
) -> Result<BTreeMap<AllocationId, AllocationRecord>, sqlx::Error> {
    sqlx::query!(r#"select fixed, body::text as "body!" from allocation"#)
        .fetch_all(tx)
        .await?
        .into_iter()
        .map(|row| {
            let entry: AllocationEntry = from_json(&row.body)?;
            let private: PrivateFields = from_json(&row.body)?;
            let record = AllocationRecord {
                entry,
                fixed: row.fixed,
                gpus: private.gpus,
                group: private.group,
                trial: private.trial,
                trace_parent: private.trace_parent,
            };
            Ok((record.entry.id.clone(), record))
        })
        .collect()
}

pub async fn upsert(
    tx: &mut PgConnection,
    allocations: &BTreeMap<AllocationId, AllocationRecord>,
) -> Result<(), sqlx::Error> {
    if allocations.is_empty() {
        return Ok(());
    }
    let entries = || allocations.values().map(|record| &record.entry);
    let bodies: Vec<String> = allocations
        .values()
        .map(to_body)
        .collect::<Result<_, _>>()?;
    sqlx::query!(
        "insert into allocation (id, work, node, quanta, incarnation, live, fixed, body)
         select new.id, new.work, new.node, new.quanta, new.incarnation, new.live, new.fixed,
                new.body::json
           from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[],
                       $6::boolean[], $7::boolean[], $8::text[])
             as new (id, work, node, quanta, incarnation, live, fixed, body)
         on conflict (id) do update set live = excluded.live, body = excluded.body",
        &entries()
            .map(|entry| entry.id.to_string())
            .collect::<Vec<_>>(),
        &entries()
            .map(|entry| entry.work.to_string())
            .collect::<Vec<_>>(),
        &entries()
            .map(|entry| entry.node.to_string())
            .collect::<Vec<_>>(),
        &entries()
            .map(|entry| signed(entry.order))
            .collect::<Vec<_>>(),
        &entries()
            .map(|entry| signed(entry.incarnation))
            .collect::<Vec<_>>(),
        &entries().map(AllocationEntry::holds).collect::<Vec<_>>(),
        &allocations
            .values()
            .map(|record| record.fixed)
            .collect::<Vec<_>>(),
        &bodies
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete(
    tx: &mut PgConnection,
    ids: &BTreeSet<AllocationId>,
) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    sqlx::query!("delete from allocation where id = any($1)", &ids)
        .execute(tx)
        .await
        .map(drop)
}

pub async fn load_incarnations(
    tx: &mut PgConnection,
) -> Result<BTreeMap<WorkId, u64>, sqlx::Error> {
    let rows = sqlx::query!("select work, last from incarnation")
        .fetch_all(tx)
        .await?;
    // Rows with an invalid name were not written by this service.
    Ok(rows
        .into_iter()
        .filter_map(|row| Some((WorkId::new(row.work).ok()?, unsigned(row.last))))
        .collect())
}

pub async fn upsert_incarnations(
    tx: &mut PgConnection,
    incarnations: &BTreeMap<WorkId, u64>,
) -> Result<(), sqlx::Error> {
    if incarnations.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into incarnation (work, last)
         select new.work, new.last from unnest($1::text[], $2::bigint[]) as new (work, last)
         on conflict (work) do update set last = excluded.last",
        &incarnations
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        &incarnations
            .values()
            .copied()
            .map(signed)
            .collect::<Vec<_>>()
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete_incarnations(
    tx: &mut PgConnection,
    works: &BTreeSet<WorkId>,
) -> Result<(), sqlx::Error> {
    if works.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = works.iter().map(ToString::to_string).collect();
    sqlx::query!("delete from incarnation where work = any($1)", &names)
        .execute(tx)
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_api::AllocationState;
    use hayward_vocabulary::{Size, Timestamp, WorkKind};

    use super::*;

    #[test]
    fn a_body_can_be_read_as_an_entry_and_as_private_fields() {
        let entry = AllocationEntry {
            id: "alc_1".parse().unwrap(),
            work: "job_1".parse().unwrap(),
            kind: WorkKind::Job,
            user: "ann".parse().unwrap(),
            class: "normal".into(),
            node: "n1".parse().unwrap(),
            order: 1,
            size: Size::default(),
            incarnation: 1,
            granted_at: Timestamp::default(),
            running_since: None,
            exclusive: false,
            predecessor: None,
            request: None,
            state: AllocationState::Assigned,
            vacate: None,
            marked: None,
            exit: None,
            launch: None,
        };
        let group = Some("dev".to_owned());
        let trace_parent =
            Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
        for (gpus, group, trial, trace_parent) in [
            (vec![], None, None, None),
            (vec![0, 3], None, None, None),
            (vec![], None, Some(2), None),
            (vec![], group, None, None),
            (vec![], None, None, trace_parent),
        ] {
            let record = AllocationRecord {
                entry: entry.clone(),
                fixed: false,
                gpus,
                group,
                trial,
                trace_parent,
            };
            let text = to_body(&record).unwrap();
            assert_eq!(from_json::<AllocationEntry>(&text).unwrap(), record.entry);
            let private: PrivateFields = from_json(&text).unwrap();
            assert_eq!((private.gpus, private.trial), (record.gpus, record.trial));
            assert_eq!(
                (private.group, private.trace_parent),
                (record.group, record.trace_parent)
            );
        }
    }
}
