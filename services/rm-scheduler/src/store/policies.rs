//! Table `policy`: all generations of the policy. The newest generation is in force.

use hayward_rm_scheduler_api::policy::{PolicyVersion, PolicyView};
use hayward_vocabulary::Timestamp;
use sqlx::{PgConnection, PgPool};

use super::{from_json, signed, to_json, unsigned};
use crate::model::NewPolicy;

/// Returns the policy in force, or `None` if no policy was ever set.
pub async fn newest(tx: &mut PgConnection) -> Result<Option<PolicyView>, sqlx::Error> {
    sqlx::query!(
        r#"select generation, document::text as "document!" from policy
            order by generation desc limit 1"#
    )
    .fetch_optional(tx)
    .await?
    .map(|row| {
        Ok(PolicyView {
            generation: unsigned(row.generation),
            policy: from_json(&row.document)?,
        })
    })
    .transpose()
}

/// Returns the generations before this one, newest first, without their documents.
pub async fn history(
    pool: &PgPool,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<PolicyVersion>, sqlx::Error> {
    sqlx::query!(
        r#"select generation, changed_by, changed_at_ms, changes::text as "changes!" from policy
            where generation < $1 order by generation desc limit $2"#,
        before.map_or(i64::MAX, signed),
        signed(limit as u64)
    )
    .fetch_all(pool)
    .await?
    .into_iter()
    .map(|row| {
        Ok(PolicyVersion {
            generation: unsigned(row.generation),
            changed_by: row.changed_by,
            changed_at: Timestamp::from_unix_ms(row.changed_at_ms),
            changes: from_json(&row.changes)?,
            policy: None,
        })
    })
    .collect()
}

/// Returns one generation with its document.
pub async fn version(pool: &PgPool, generation: u64) -> Result<Option<PolicyVersion>, sqlx::Error> {
    sqlx::query!(
        r#"select changed_by, changed_at_ms, changes::text as "changes!",
                  document::text as "document!"
             from policy where generation = $1"#,
        signed(generation)
    )
    .fetch_optional(pool)
    .await?
    .map(|row| {
        Ok(PolicyVersion {
            generation,
            changed_by: row.changed_by,
            changed_at: Timestamp::from_unix_ms(row.changed_at_ms),
            changes: from_json(&row.changes)?,
            policy: Some(from_json(&row.document)?),
        })
    })
    .transpose()
}

pub async fn insert(tx: &mut PgConnection, policy: &NewPolicy) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into policy (generation, document, changed_by, changed_at_ms, changes)
         values ($1, $2::text::json, $3, $4, $5::text::json)",
        signed(policy.generation),
        to_json(&policy.document)?,
        policy.changed_by,
        policy.changed_at_ms,
        to_json(&policy.changes)?
    )
    .execute(tx)
    .await
    .map(drop)
}
