//! Table `policy`.

use hayward_rm_scheduler_api::policy::PolicyView;
use sqlx::PgConnection;

use super::{NewPolicy, json, read, signed, unsigned};

/// The policy in force, or none when nobody has set one.
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
            policy: read(&row.document)?,
        })
    })
    .transpose()
}

pub async fn insert(tx: &mut PgConnection, policy: &NewPolicy) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into policy (generation, document, changed_by, changed_at_ms)
         values ($1, $2::text::json, $3, $4)",
        signed(policy.generation),
        json(&policy.document)?,
        policy.changed_by,
        policy.changed_at_ms
    )
    .execute(tx)
    .await
    .map(drop)
}
