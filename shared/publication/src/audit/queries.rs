//! Database queries of the audit records. They only add, read and prune records.

use hayward_vocabulary::Timestamp;
use sqlx::PgConnection;

use super::record::{AuditOutcome, AuditRecord, Digest, Link};

/// Adds any number of records in one statement.
pub async fn append(tx: &mut PgConnection, records: &[AuditRecord]) -> Result<(), sqlx::Error> {
    if records.is_empty() {
        return Ok(());
    }
    let texts = |pick: fn(&AuditRecord) -> &str| -> Vec<String> {
        records.iter().map(|it| pick(it).to_owned()).collect()
    };
    let optional_texts = |pick: fn(&AuditRecord) -> &Option<String>| -> Vec<Option<String>> {
        records.iter().map(|it| pick(it).clone()).collect()
    };
    let numbers = |pick: fn(&AuditRecord) -> u64| -> Vec<i64> {
        records.iter().map(|it| to_i64(pick(it))).collect()
    };
    let digests = |pick: fn(&AuditRecord) -> Option<Digest>| -> Vec<Option<Vec<u8>>> {
        let all = records.iter().map(pick);
        all.map(|it| it.map(|digest| digest.0.to_vec())).collect()
    };
    let at_ms: Vec<i64> = records.iter().map(|it| it.at.unix_ms()).collect();
    let status = records.iter().map(|it| it.status.map(u16::cast_signed));
    let status: Vec<Option<i16>> = status.collect();
    sqlx::query!(
        "insert into audit (number, revision, at_ms, outcome, status, actor, subject, kind,
             address, method, route, object, entry, requests, changed, digest_before,
             digest_after, request_id, trace_id, hash)
         select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[],
             $5::smallint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
             $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[],
             $16::bytea[], $17::bytea[], $18::text[], $19::text[], $20::bytea[])",
        &numbers(|it| it.number),
        &numbers(|it| it.revision),
        &at_ms,
        &texts(|it| it.outcome.as_str()),
        &status as &[Option<i16>],
        &texts(|it| &it.actor),
        &texts(|it| &it.subject),
        &texts(|it| &it.kind),
        &optional_texts(|it| &it.address) as &[Option<String>],
        &texts(|it| &it.method),
        &texts(|it| &it.route),
        &texts(|it| &it.object),
        &optional_texts(|it| &it.entry) as &[Option<String>],
        &numbers(|it| it.requests),
        &numbers(|it| it.changed),
        &digests(|it| it.digest_before) as &[Option<Vec<u8>>],
        &digests(|it| it.digest_after) as &[Option<Vec<u8>>],
        &optional_texts(|it| &it.request_id) as &[Option<String>],
        &optional_texts(|it| &it.trace_id) as &[Option<String>],
        &digests(|it| Some(it.hash)) as &[Option<Vec<u8>>]
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Returns the start of the chain, which is after the last pruned record.
pub async fn anchor(tx: &mut PgConnection) -> Result<Link, sqlx::Error> {
    let row = sqlx::query!("select number, revision, hash from audit_anchor")
        .fetch_optional(tx)
        .await?;
    Ok(row.map_or_else(Link::default, |row| Link {
        number: to_u64(row.number),
        revision: to_u64(row.revision),
        hash: Digest::from_stored(&row.hash),
    }))
}

/// Returns the position after the last record, or the start of the chain.
pub async fn head(tx: &mut PgConnection) -> Result<Link, sqlx::Error> {
    let last =
        sqlx::query!("select number, revision, hash from audit order by number desc limit 1")
            .fetch_optional(&mut *tx)
            .await?;
    match last {
        Some(row) => Ok(Link {
            number: to_u64(row.number),
            revision: to_u64(row.revision),
            hash: Digest::from_stored(&row.hash),
        }),
        None => anchor(tx).await,
    }
}

/// Returns the position after record `number`. Returns `None` if there is no such record.
pub async fn link_after(tx: &mut PgConnection, number: u64) -> Result<Option<Link>, sqlx::Error> {
    let row = sqlx::query!(
        "select number, revision, hash from audit where number = $1",
        to_i64(number)
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| Link {
        number: to_u64(row.number),
        revision: to_u64(row.revision),
        hash: Digest::from_stored(&row.hash),
    }))
}

/// Returns the number of the last record before an instant.
pub async fn last_number_before(
    tx: &mut PgConnection,
    since: Timestamp,
) -> Result<Option<u64>, sqlx::Error> {
    // Records are ordered by time, as far as the clocks permit. The search uses the key and
    // therefore needs no index on the time.
    let first = sqlx::query_scalar!(
        "select number from audit where at_ms >= $1 order by number limit 1",
        since.unix_ms()
    )
    .fetch_optional(&mut *tx)
    .await?;
    Ok(first.map(|number| to_u64(number).saturating_sub(1)))
}

/// Returns up to `limit` records after `number`.
pub async fn records_after(
    tx: &mut PgConnection,
    number: u64,
    limit: i64,
) -> Result<Vec<AuditRecord>, sqlx::Error> {
    let rows = sqlx::query!(
        "select * from audit where number > $1 order by number limit $2",
        to_i64(number),
        limit
    )
    .fetch_all(tx)
    .await?;
    let records = rows.into_iter().map(|row| AuditRecord {
        number: to_u64(row.number),
        revision: to_u64(row.revision),
        at: Timestamp::from_unix_ms(row.at_ms),
        outcome: match row.outcome.as_str() {
            "refused" => AuditOutcome::Refused,
            _ => AuditOutcome::Committed,
        },
        status: row.status.map(i16::cast_unsigned),
        actor: row.actor,
        subject: row.subject,
        kind: row.kind,
        address: row.address,
        method: row.method,
        route: row.route,
        object: row.object,
        entry: row.entry,
        requests: to_u64(row.requests),
        changed: to_u64(row.changed),
        digest_before: row.digest_before.as_deref().map(Digest::from_stored),
        digest_after: row.digest_after.as_deref().map(Digest::from_stored),
        request_id: row.request_id,
        trace_id: row.trace_id,
        hash: Digest::from_stored(&row.hash),
    });
    Ok(records.collect())
}

/// Returns the revision of the current state.
pub async fn revision(tx: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let revision = sqlx::query_scalar!("select revision from writer")
        .fetch_one(tx)
        .await?;
    Ok(to_u64(revision))
}

/// Deletes some records older than 400 days. Returns the number of deleted records.
pub async fn prune(tx: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let deleted = sqlx::query_scalar!("select prune_audit()")
        .fetch_one(tx)
        .await?;
    Ok(deleted.unwrap_or(0))
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number of the database. A negative number becomes 0, which fails the verification.
fn to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
