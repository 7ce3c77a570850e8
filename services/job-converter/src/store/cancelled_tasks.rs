//! Rows of cancelled tasks: ranges of those without a run, and those whose runs are being stopped.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// Tasks `first..past` that ended without a run.
#[derive(Debug, Clone)]
pub struct UnrunRow {
    pub job: Uuid,
    pub first: i64,
    pub past: i64,
    pub state: String,
    pub message: String,
    pub ended_at_ms: i64,
}

/// A task that was cancelled while a process had it.
#[derive(Debug, Clone)]
pub struct TaskStopRow {
    pub job: Uuid,
    pub task: i64,
    pub requested_by: String,
}

pub async fn insert_unrun(tx: &mut PgConnection, rows: &[UnrunRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let jobs: Vec<Uuid> = rows.iter().map(|row| row.job).collect();
    let firsts: Vec<i64> = rows.iter().map(|row| row.first).collect();
    let pasts: Vec<i64> = rows.iter().map(|row| row.past).collect();
    let states: Vec<String> = rows.iter().map(|row| row.state.clone()).collect();
    let messages: Vec<String> = rows.iter().map(|row| row.message.clone()).collect();
    let at: Vec<i64> = rows.iter().map(|row| row.ended_at_ms).collect();
    sqlx::query!(
        "insert into unrun (job, first, past, state, message, ended_at_ms)
         select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[],
                              $6::bigint[])",
        &jobs,
        &firsts,
        &pasts,
        &states,
        &messages,
        &at
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Inserts cancellations. The first one of a task stays.
pub async fn insert_stops(tx: &mut PgConnection, rows: &[TaskStopRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let jobs: Vec<Uuid> = rows.iter().map(|row| row.job).collect();
    let tasks: Vec<i64> = rows.iter().map(|row| row.task).collect();
    let callers: Vec<String> = rows.iter().map(|row| row.requested_by.clone()).collect();
    sqlx::query!(
        "insert into task_stop (job, task, requested_by)
         select * from unnest($1::uuid[], $2::bigint[], $3::text[])
         on conflict do nothing",
        &jobs,
        &tasks,
        &callers
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Deletes the cancellations of jobs that have ended.
pub async fn delete_stops(tx: &mut PgConnection, jobs: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query!("delete from task_stop where job = any($1)", jobs)
        .execute(tx)
        .await
        .map(drop)
}

/// Loads the ranges of all open jobs.
pub async fn load_unrun(tx: &mut PgConnection) -> Result<Vec<UnrunRow>, sqlx::Error> {
    sqlx::query_as!(
        UnrunRow,
        "select u.job, u.first, u.past, u.state, u.message, u.ended_at_ms
           from unrun u join work w on w.id = u.job and w.ended_at_ms is null"
    )
    .fetch_all(tx)
    .await
}

pub async fn load_stops(tx: &mut PgConnection) -> Result<Vec<TaskStopRow>, sqlx::Error> {
    sqlx::query_as!(TaskStopRow, "select job, task, requested_by from task_stop")
        .fetch_all(tx)
        .await
}

/// Part of the ranges of a job.
pub struct UnrunPage<'a> {
    pub job: Uuid,
    pub first_task: i64,
    /// Only tasks in this state. `None` for all.
    pub state: Option<&'a str>,
    /// Maximum number of ranges.
    pub limit: i64,
}

/// Returns the ranges of a job that have the first task or a later one, in order.
pub async fn load_unrun_page(
    pool: &PgPool,
    page: &UnrunPage<'_>,
) -> Result<Vec<UnrunRow>, sqlx::Error> {
    sqlx::query_as!(
        UnrunRow,
        "select job, first, past, state, message, ended_at_ms from unrun
          where job = $1 and past > $2 and ($3::text is null or state = $3)
          order by first limit $4",
        page.job,
        page.first_task,
        page.state,
        page.limit
    )
    .fetch_all(pool)
    .await
}
