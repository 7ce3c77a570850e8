//! The table `failure_fact`: facts about nodes.

use std::collections::BTreeSet;

use hayward_blocklist_domain::{Attempt, Fact, FactKind};
use hayward_vocabulary::{ExitCause, NodeName, Timestamp, UserName, WorkId};
use serde_json::Value;
use sqlx::PgConnection;

/// One row of the table.
#[derive(Debug, Clone)]
pub struct FactRow {
    pub node: NodeName,
    pub fact: Fact,
}

fn kind_to_column(kind: FactKind) -> &'static str {
    match kind {
        FactKind::Failure => "FAILED",
        FactKind::Success => "WORKED",
        FactKind::LostContact => "SILENCED",
        FactKind::Contact => "HEARD",
        FactKind::Slow => "SLOW",
    }
}

fn parse_kind(text: &str) -> Option<FactKind> {
    let kinds = [
        FactKind::Failure,
        FactKind::Success,
        FactKind::LostContact,
        FactKind::Contact,
        FactKind::Slow,
    ];
    kinds.into_iter().find(|kind| kind_to_column(*kind) == text)
}

/// Returns the name of a cause in the API.
pub fn cause_name(cause: ExitCause) -> String {
    match serde_json::to_value(cause) {
        Ok(Value::String(name)) => name,
        _ => "unknown".to_owned(),
    }
}

fn decode_error<E: std::error::Error + Send + Sync + 'static>(error: E) -> sqlx::Error {
    sqlx::Error::Decode(error.into())
}

pub async fn load_facts(tx: &mut PgConnection) -> Result<Vec<FactRow>, sqlx::Error> {
    let rows = sqlx::query!(
        "select key, what, node, at_ms, work, owner, cause, cause_code, ran, held_ms, spent
           from failure_fact"
    )
    .fetch_all(tx)
    .await?;
    let mut facts = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(kind) = parse_kind(&row.what) else {
            continue;
        };
        let attempt = match (row.work, row.owner) {
            (Some(work), Some(owner)) => Some(Attempt {
                work: WorkId::new(work).map_err(decode_error)?,
                user: UserName::new(owner).map_err(decode_error)?,
                cause: serde_json::from_value(row.cause.into()).unwrap_or(ExitCause::Unknown),
                cause_class: row.cause_code,
                has_run: row.ran,
                occupied_ms: u64::try_from(row.held_ms).unwrap_or(0),
            }),
            _ => None,
        };
        facts.push(FactRow {
            node: NodeName::new(row.node).map_err(decode_error)?,
            fact: Fact {
                key: row.key,
                kind,
                at: Timestamp::from_unix_ms(row.at_ms),
                attempt,
                spent: row.spent,
            },
        });
    }
    Ok(facts)
}

/// Marks the stored facts of these nodes as spent.
pub async fn mark_spent(
    nodes: &BTreeSet<NodeName>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    sqlx::query!(
        "update failure_fact set spent = true where node = any($1) and not spent",
        &nodes
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn insert(rows: &[FactRow], tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let column = |value: fn(&Attempt) -> String| -> Vec<Option<String>> {
        let attempts = rows.iter().map(|row| row.fact.attempt.as_ref());
        attempts.map(|attempt| attempt.map(value)).collect()
    };
    let keys: Vec<String> = rows.iter().map(|row| row.fact.key.clone()).collect();
    let kinds: Vec<String> = rows
        .iter()
        .map(|row| kind_to_column(row.fact.kind).to_owned())
        .collect();
    let nodes: Vec<String> = rows.iter().map(|row| row.node.to_string()).collect();
    let at_ms: Vec<i64> = rows.iter().map(|row| row.fact.at.unix_ms()).collect();
    let works = column(|attempt| attempt.work.to_string());
    let owners = column(|attempt| attempt.user.to_string());
    let causes = column(|attempt| cause_name(attempt.cause));
    let attempts = || rows.iter().map(|row| row.fact.attempt.as_ref());
    let codes: Vec<Option<String>> = attempts()
        .map(|attempt| attempt.and_then(|attempt| attempt.cause_class.clone()))
        .collect();
    let ran: Vec<bool> = attempts()
        .map(|attempt| attempt.is_some_and(|attempt| attempt.has_run))
        .collect();
    let held: Vec<i64> = attempts()
        .map(|attempt| attempt.map_or(0, |attempt| attempt.occupied_ms))
        .map(|ms| i64::try_from(ms).unwrap_or(i64::MAX))
        .collect();
    let spent: Vec<bool> = rows.iter().map(|row| row.fact.spent).collect();
    sqlx::query!(
        "insert into failure_fact (key, what, node, at_ms, work, owner, cause, cause_code, ran,
                                   held_ms, spent)
         select * from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[],
                              $6::text[], $7::text[], $8::text[], $9::boolean[], $10::bigint[],
                              $11::boolean[])
         on conflict (key, what) do nothing",
        &keys,
        &kinds,
        &nodes,
        &at_ms,
        &works as &[Option<String>],
        &owners as &[Option<String>],
        &causes as &[Option<String>],
        &codes as &[Option<String>],
        &ran,
        &held,
        &spent
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete(
    facts: &[(String, FactKind)],
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let keys: Vec<String> = facts.iter().map(|(key, _)| key.clone()).collect();
    let kinds: Vec<String> = facts
        .iter()
        .map(|(_, kind)| kind_to_column(*kind).to_owned())
        .collect();
    sqlx::query!(
        "delete from failure_fact using unnest($1::text[], $2::text[]) as old (key, what)
          where failure_fact.key = old.key and failure_fact.what = old.what",
        &keys,
        &kinds
    )
    .execute(tx)
    .await
    .map(drop)
}
