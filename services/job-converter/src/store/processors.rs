//! Rows of the processors of services, and of their last nodes. A slot is the work id of a
//! processor.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

/// State of a processor that has counted failures, an outcome or a failover.
pub struct ProcessorRow {
    pub slot: String,
    /// Id of the service.
    pub work: Uuid,
    /// `None` without counted failures.
    pub failures: Option<FailureColumns>,
    /// Outcome of the processor: `failed` or `completed`. `None` while it may start processes.
    pub ended: Option<&'static str>,
    /// Failover in progress, as JSON.
    pub failover: Option<String>,
}

/// Columns of the counted failures of a processor.
#[derive(Clone, Copy)]
pub struct FailureColumns {
    pub count: i32,
    /// Time of the last failure.
    pub last_failure_ms: i64,
    /// Delay of the last retry.
    pub last_delay_ms: i64,
}

/// Node on which a processor was last started.
pub struct LastHostRow {
    pub user: String,
    /// Name of the service, or its id if it has no name.
    pub service: String,
    /// Number of the processor: `0`, or `0-0` for the first standby of `0`.
    pub processor: String,
    pub node: String,
    /// Time of the start.
    pub at_ms: i64,
}

/// Writes rows of processors. The last row of each slot counts.
pub async fn upsert(tx: &mut PgConnection, rows: &[ProcessorRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let last: BTreeMap<&str, &ProcessorRow> =
        rows.iter().map(|row| (row.slot.as_str(), row)).collect();
    let rows: Vec<&ProcessorRow> = last.into_values().collect();
    let slots: Vec<String> = rows.iter().map(|row| row.slot.clone()).collect();
    let works: Vec<Uuid> = rows.iter().map(|row| row.work).collect();
    let failures = || rows.iter().map(|row| row.failures);
    let counts: Vec<Option<i32>> = failures().map(|it| Some(it?.count)).collect();
    let at: Vec<Option<i64>> = failures().map(|it| Some(it?.last_failure_ms)).collect();
    let delays: Vec<Option<i64>> = failures().map(|it| Some(it?.last_delay_ms)).collect();
    let ended: Vec<Option<String>> = rows
        .iter()
        .map(|row| row.ended.map(str::to_owned))
        .collect();
    let failovers: Vec<Option<String>> = rows.iter().map(|row| row.failover.clone()).collect();
    sqlx::query!(
        "insert into processor
            (slot, work, failures, last_failure_ms, last_delay_ms, ended, failover)
         select new.slot, new.work, new.failures, new.at, new.delay, new.ended, new.failover::json
           from unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::bigint[], $6::text[],
                       $7::text[]) as new (slot, work, failures, at, delay, ended, failover)
         on conflict (slot) do update set failures = excluded.failures,
            last_failure_ms = excluded.last_failure_ms, last_delay_ms = excluded.last_delay_ms,
            ended = excluded.ended, failover = excluded.failover",
        &slots,
        &works,
        &counts as &[Option<i32>],
        &at as &[Option<i64>],
        &delays as &[Option<i64>],
        &ended as &[Option<String>],
        &failovers as &[Option<String>]
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Writes rows of last nodes. The last row of each processor counts.
pub async fn upsert_last_hosts(
    tx: &mut PgConnection,
    rows: &[LastHostRow],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let key = |row: &LastHostRow| (row.user.clone(), row.service.clone(), row.processor.clone());
    let last: BTreeMap<_, &LastHostRow> = rows.iter().map(|row| (key(row), row)).collect();
    let rows: Vec<&LastHostRow> = last.into_values().collect();
    let users: Vec<String> = rows.iter().map(|row| row.user.clone()).collect();
    let services: Vec<String> = rows.iter().map(|row| row.service.clone()).collect();
    let processors: Vec<String> = rows.iter().map(|row| row.processor.clone()).collect();
    let nodes: Vec<String> = rows.iter().map(|row| row.node.clone()).collect();
    let at: Vec<i64> = rows.iter().map(|row| row.at_ms).collect();
    sqlx::query!(
        "insert into locality (user_name, service, processor, node, at_ms)
         select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
         on conflict (user_name, service, processor)
            do update set node = excluded.node, at_ms = excluded.at_ms",
        &users,
        &services,
        &processors,
        &nodes,
        &at
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Deletes the last nodes of services that were deleted from the history. The key is user and name.
pub async fn delete_last_hosts(
    tx: &mut PgConnection,
    deleted: &[(String, String)],
) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    let (users, services): (Vec<String>, Vec<String>) = deleted.iter().cloned().unzip();
    sqlx::query!(
        "delete from locality using unnest($1::text[], $2::text[]) as gone (user_name, service)
          where locality.user_name = gone.user_name and locality.service = gone.service",
        &users,
        &services
    )
    .execute(tx)
    .await
    .map(drop)
}

pub struct StoredProcessor {
    pub slot: String,
    pub work: Uuid,
    pub failures: Option<i32>,
    pub last_failure_ms: Option<i64>,
    pub last_delay_ms: Option<i64>,
    pub ended: Option<String>,
    pub failover: Option<String>,
}

pub async fn load_all(tx: &mut PgConnection) -> Result<Vec<StoredProcessor>, sqlx::Error> {
    sqlx::query_as!(
        StoredProcessor,
        "select slot, work, failures, last_failure_ms, last_delay_ms, ended,
                failover::text as failover
           from processor order by slot"
    )
    .fetch_all(tx)
    .await
}

pub async fn load_last_hosts(tx: &mut PgConnection) -> Result<Vec<LastHostRow>, sqlx::Error> {
    sqlx::query_as!(
        LastHostRow,
        r#"select user_name as "user", service, processor, node, at_ms from locality
            order by user_name, service, processor"#
    )
    .fetch_all(tx)
    .await
}
