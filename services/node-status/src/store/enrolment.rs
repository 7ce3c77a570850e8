//! The table `enrolment`.

use std::collections::BTreeMap;

use hayward_vocabulary::{NodeName, Size, Timestamp};
use sqlx::PgConnection;

use crate::model::{ClaimLimits, Enrolment, EnrolmentKey};

pub async fn load_enrolments(
    tx: &mut PgConnection,
) -> Result<Vec<(EnrolmentKey, Enrolment)>, sqlx::Error> {
    let rows = sqlx::query!(
        "select principal, idempotency_key, request_digest, node, secret_digest, created_ms,
                expires_ms, used, most::text as most, pool
           from enrolment"
    )
    .fetch_all(tx)
    .await?;
    let mut enrolments = Vec::with_capacity(rows.len());
    for row in rows {
        let node = NodeName::new(row.node).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let max_size = row.most.as_deref().map(serde_json::from_str::<Size>);
        let max_size = max_size.transpose();
        let max_size = max_size.map_err(|error| sqlx::Error::Decode(error.into()))?;
        let enrolment = Enrolment {
            request_digest: row.request_digest,
            node,
            claim_limits: ClaimLimits::new(max_size, row.pool),
            secret_digest: row.secret_digest,
            created: Timestamp::from_unix_ms(row.created_ms),
            expires: Timestamp::from_unix_ms(row.expires_ms),
            used: row.used,
        };
        enrolments.push(((row.principal, row.idempotency_key), enrolment));
    }
    Ok(enrolments)
}

/// Writes rows one by one, because operators enrol one node at a time.
pub async fn write(
    enrolments: BTreeMap<(String, String), Enrolment>,
    tx: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    for ((principal, key), enrolment) in enrolments {
        let claim_limits = enrolment.claim_limits.as_ref();
        let max_size = claim_limits.map(|it| super::node_limit::size_text(&it.max_size));
        let pool = claim_limits.and_then(|it| it.pool.as_deref());
        sqlx::query!(
            "insert into enrolment (principal, idempotency_key, request_digest, node,
                                    secret_digest, created_ms, expires_ms, used, most, pool)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::json, $10)
             on conflict (principal, idempotency_key) do update
                set secret_digest = excluded.secret_digest, created_ms = excluded.created_ms,
                    expires_ms = excluded.expires_ms, used = excluded.used",
            principal,
            key,
            enrolment.request_digest,
            enrolment.node.as_str(),
            enrolment.secret_digest,
            enrolment.created.unix_ms(),
            enrolment.expires.unix_ms(),
            enrolment.used,
            max_size,
            pool
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub async fn delete(keys: Vec<(String, String)>, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let (principals, keys): (Vec<String>, Vec<String>) = keys.into_iter().unzip();
    sqlx::query!(
        "delete from enrolment using unnest($1::text[], $2::text[]) as old (principal, key)
          where enrolment.principal = old.principal and enrolment.idempotency_key = old.key",
        &principals,
        &keys
    )
    .execute(tx)
    .await
    .map(drop)
}
