//! Rows of idempotency keys with their stored responses (A4).

use sqlx::PgConnection;
use uuid::Uuid;

pub struct KeyRow {
    /// First half of the digest of the caller and the key.
    pub key: Uuid,
    /// First half of the digest of the request.
    pub request: Uuid,
    pub at_ms: i64,
    /// Response body as JSON.
    pub answer: String,
}

pub async fn insert(tx: &mut PgConnection, rows: &[KeyRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let keys: Vec<Uuid> = rows.iter().map(|row| row.key).collect();
    let requests: Vec<Uuid> = rows.iter().map(|row| row.request).collect();
    let at: Vec<i64> = rows.iter().map(|row| row.at_ms).collect();
    let answers: Vec<String> = rows.iter().map(|row| row.answer.clone()).collect();
    sqlx::query!(
        "insert into answered (key, request, at_ms, answer)
         select new.key, new.request, new.at, new.answer::json
           from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[])
             as new (key, request, at, answer)",
        &keys,
        &requests,
        &at,
        &answers
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete(tx: &mut PgConnection, keys: &[Uuid]) -> Result<(), sqlx::Error> {
    if keys.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from answered where key = any($1)", keys)
        .execute(tx)
        .await
        .map(drop)
}
