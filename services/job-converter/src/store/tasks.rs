//! Rows of tasks: outcomes, counted attempts and leases.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// The outcome of a task: its success, or its last failure.
#[derive(Debug, Clone)]
pub struct OutcomeRow {
    pub job: Uuid,
    pub task: i64,
    pub attempt: i32,
    pub succeeded: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub error: Option<String>,
    pub duration_us: i64,
    /// `None` if the outcome arrived before the allocation was published.
    pub node: Option<String>,
    pub allocation: String,
    pub output: String,
    pub ended_at_ms: i64,
    /// Cause that the runner reported. `None` if it follows from the other columns.
    pub end_cause: Option<String>,
    pub end_message: Option<String>,
    pub user_us: Option<i64>,
    pub system_us: Option<i64>,
    pub max_rss_bytes: Option<i64>,
    pub peak_memory_bytes: Option<i64>,
    pub usage_source: Option<String>,
}

/// A failed attempt of a task that was tried again.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub job: Uuid,
    pub task: i64,
    pub attempt: i32,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub error: Option<String>,
    pub node: Option<String>,
    pub allocation: String,
    pub ended_at_ms: i64,
    pub end_cause: Option<String>,
    pub end_message: Option<String>,
    pub duration_us: Option<i64>,
    pub user_us: Option<i64>,
    pub system_us: Option<i64>,
    pub max_rss_bytes: Option<i64>,
    pub peak_memory_bytes: Option<i64>,
    pub usage_source: Option<String>,
    /// Earliest time of the next attempt. `None` if it waits for nothing.
    pub retry_at_ms: Option<i64>,
}

/// The tasks that an allocation may execute now.
pub struct LeaseRow {
    pub allocation: String,
    pub job: Uuid,
    /// JSON list of ranges: first task, the number after the last task, and attempt.
    pub tasks: String,
}

/// Returns one column of the rows, as the array that a statement takes.
fn column<R, T>(rows: &[R], field: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(field).collect()
}

/// Inserts outcomes. A second outcome of a task violates the primary key and fails the batch. The
/// working set is then loaded again.
pub async fn insert_outcomes(
    tx: &mut PgConnection,
    rows: &[OutcomeRow],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into outcome (job, task, attempt, succeeded, exit_code, signal, error,
                              duration_us, node, allocation, output, ended_at_ms, end_cause,
                              end_message, user_us, system_us, max_rss_bytes,
                              peak_memory_bytes, usage_source)
         select * from unnest($1::uuid[], $2::bigint[], $3::int[], $4::boolean[], $5::int[],
                              $6::int[], $7::text[], $8::bigint[], $9::text[], $10::text[],
                              $11::text[], $12::bigint[], $13::text[], $14::text[],
                              $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[],
                              $19::text[])",
        &column(rows, |row| row.job),
        &column(rows, |row| row.task),
        &column(rows, |row| row.attempt),
        &column(rows, |row| row.succeeded),
        &column(rows, |row| row.exit_code) as &[Option<i32>],
        &column(rows, |row| row.signal) as &[Option<i32>],
        &column(rows, |row| row.error.clone()) as &[Option<String>],
        &column(rows, |row| row.duration_us),
        &column(rows, |row| row.node.clone()) as &[Option<String>],
        &column(rows, |row| row.allocation.clone()),
        &column(rows, |row| row.output.clone()),
        &column(rows, |row| row.ended_at_ms),
        &column(rows, |row| row.end_cause.clone()) as &[Option<String>],
        &column(rows, |row| row.end_message.clone()) as &[Option<String>],
        &column(rows, |row| row.user_us) as &[Option<i64>],
        &column(rows, |row| row.system_us) as &[Option<i64>],
        &column(rows, |row| row.max_rss_bytes) as &[Option<i64>],
        &column(rows, |row| row.peak_memory_bytes) as &[Option<i64>],
        &column(rows, |row| row.usage_source.clone()) as &[Option<String>]
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn insert_attempts(
    tx: &mut PgConnection,
    rows: &[AttemptRow],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into attempt (job, task, attempt, exit_code, signal, error, node, allocation,
                              ended_at_ms, end_cause, end_message, duration_us, user_us,
                              system_us, max_rss_bytes, peak_memory_bytes, usage_source,
                              retry_at_ms)
         select * from unnest($1::uuid[], $2::bigint[], $3::int[], $4::int[], $5::int[],
                              $6::text[], $7::text[], $8::text[], $9::bigint[], $10::text[],
                              $11::text[], $12::bigint[], $13::bigint[], $14::bigint[],
                              $15::bigint[], $16::bigint[], $17::text[], $18::bigint[])",
        &column(rows, |row| row.job),
        &column(rows, |row| row.task),
        &column(rows, |row| row.attempt),
        &column(rows, |row| row.exit_code) as &[Option<i32>],
        &column(rows, |row| row.signal) as &[Option<i32>],
        &column(rows, |row| row.error.clone()) as &[Option<String>],
        &column(rows, |row| row.node.clone()) as &[Option<String>],
        &column(rows, |row| row.allocation.clone()),
        &column(rows, |row| row.ended_at_ms),
        &column(rows, |row| row.end_cause.clone()) as &[Option<String>],
        &column(rows, |row| row.end_message.clone()) as &[Option<String>],
        &column(rows, |row| row.duration_us) as &[Option<i64>],
        &column(rows, |row| row.user_us) as &[Option<i64>],
        &column(rows, |row| row.system_us) as &[Option<i64>],
        &column(rows, |row| row.max_rss_bytes) as &[Option<i64>],
        &column(rows, |row| row.peak_memory_bytes) as &[Option<i64>],
        &column(rows, |row| row.usage_source.clone()) as &[Option<String>],
        &column(rows, |row| row.retry_at_ms) as &[Option<i64>]
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn upsert_leases(tx: &mut PgConnection, rows: &[LeaseRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into lease (allocation, job, tasks)
         select new.allocation, new.job, new.tasks::json
           from unnest($1::text[], $2::uuid[], $3::text[]) as new (allocation, job, tasks)
         on conflict (allocation) do update set job = excluded.job, tasks = excluded.tasks",
        &column(rows, |row| row.allocation.clone()),
        &column(rows, |row| row.job),
        &column(rows, |row| row.tasks.clone())
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete_leases(tx: &mut PgConnection, deleted: &[String]) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from lease where allocation = any($1)", deleted)
        .execute(tx)
        .await
        .map(drop)
}

/// Part of the outcomes of a job.
pub struct OutcomePage {
    pub job: Uuid,
    /// Number of the first task.
    pub first_task: i64,
    /// Only tasks in this state. `None` for all.
    pub state: Option<&'static str>,
    pub limit: i64,
}

/// Returns a page of the outcomes of a job by task number.
pub async fn load_outcomes(
    pool: &PgPool,
    page: &OutcomePage,
) -> Result<Vec<OutcomeRow>, sqlx::Error> {
    sqlx::query_as!(
        OutcomeRow,
        "select job, task, attempt, succeeded, exit_code, signal, error, duration_us, node,
                allocation, output, ended_at_ms, end_cause, end_message, user_us, system_us,
                max_rss_bytes, peak_memory_bytes, usage_source
           from outcome
          where job = $1 and task >= $2
            and ($3::text is null or $3 = case when succeeded then 'succeeded'
                                               when end_cause = 'cancelled' then end_cause
                                               else 'failed' end)
          order by task limit $4",
        page.job,
        page.first_task,
        page.state,
        page.limit
    )
    .fetch_all(pool)
    .await
}

/// Returns the outcome of one task.
pub async fn load_outcome(
    pool: &PgPool,
    job: Uuid,
    task: i64,
) -> Result<Option<OutcomeRow>, sqlx::Error> {
    let page = OutcomePage {
        job,
        first_task: task,
        state: None,
        limit: 1,
    };
    let first = load_outcomes(pool, &page).await?.pop();
    Ok(first.filter(|row| row.task == task))
}

/// Returns the failed attempts of a task, oldest first.
pub async fn load_attempts(
    pool: &PgPool,
    job: Uuid,
    task: i64,
) -> Result<Vec<AttemptRow>, sqlx::Error> {
    sqlx::query_as!(
        AttemptRow,
        "select job, task, attempt, exit_code, signal, error, node, allocation, ended_at_ms,
                end_cause, end_message, duration_us, user_us, system_us, max_rss_bytes,
                peak_memory_bytes, usage_source,
                retry_at_ms
           from attempt where job = $1 and task = $2 order by attempt limit 1000",
        job,
        task
    )
    .fetch_all(pool)
    .await
}
