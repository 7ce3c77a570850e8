//! Loads all rows that the working set is restored from at the start of a term. Outcomes of open
//! jobs are read as ranges, because a job of ten million tasks is mostly one range.

use sqlx::PgConnection;
use uuid::Uuid;

use super::accounts::{self, StoredAccount};
use super::applications::{self, ApplicationRow, ApplicationTaskRow};
use super::cancelled_tasks::{self, TaskStopRow, UnrunRow};
use super::idempotency_keys::KeyRow;
use super::past_allocations::{self, PastRow};
use super::processors::{self, LastHostRow, StoredProcessor};

/// Work that has not ended.
pub struct OpenRow {
    pub id: Uuid,
    pub kind: String,
    pub user_name: String,
    pub submitted_at_ms: i64,
    pub submission: String,
    pub traceparent: Option<String>,
    pub runner: Option<String>,
    pub cancelled: bool,
    pub events: i32,
    pub generation: i32,
    pub deployed: i32,
    pub groups: Option<String>,
    pub actor: Option<String>,
}

/// Ended work.
pub struct FinalRow {
    pub id: Uuid,
    pub user_name: String,
    pub ended_at_ms: i64,
    pub runner: Option<String>,
    pub kind: String,
    /// Name chosen by the user.
    pub name: Option<String>,
    /// Whether the submission sets host affinity or has standbys.
    pub host_affinity: bool,
}

/// A token of task runners.
pub struct RunnerRow {
    pub id: String,
    pub token: String,
}

/// A range of tasks with an outcome: `start..stop`.
pub struct DoneRow {
    pub job: Uuid,
    pub start: i64,
    pub stop: i64,
}

/// Sums over the outcomes of one job.
pub struct SumRow {
    pub job: Uuid,
    pub failed: i64,
    pub cancelled: i64,
    pub spent_us: i64,
}

/// Runs of one job with similar memory and wall time.
pub struct UsageRow {
    pub job: Uuid,
    /// Buckets of the distributions in `JobUsage`.
    pub memory_bucket: i32,
    pub wall_bucket: i32,
    pub runs: i64,
    pub cpu_us: i64,
    pub wall_us: i64,
    pub max_memory_bytes: i64,
    pub max_wall_us: i64,
}

/// Number of counted failures of one task.
pub struct FailuresRow {
    pub job: Uuid,
    pub task: i64,
    pub failures: i64,
    /// Earliest time of the next attempt. `None` if it waits for nothing.
    pub retry_at_ms: Option<i64>,
}

/// Tasks leased to one allocation.
pub struct StoredLease {
    pub allocation: String,
    pub job: Uuid,
    pub tasks: String,
}

/// A settled allocation.
pub struct StoredSettled {
    pub work: Uuid,
    pub slot: String,
    pub allocation: String,
}

/// Number of ends without progress of one slot.
pub struct StoredBackoff {
    pub work: Uuid,
    pub slot: String,
    pub strikes: i32,
}

/// All rows, read in one transaction.
pub struct Stored {
    pub accounts: Vec<StoredAccount>,
    pub runners: Vec<RunnerRow>,
    pub open: Vec<OpenRow>,
    pub final_works: Vec<FinalRow>,
    pub done: Vec<DoneRow>,
    pub sums: Vec<SumRow>,
    pub usage: Vec<UsageRow>,
    pub failures: Vec<FailuresRow>,
    pub unrun: Vec<UnrunRow>,
    pub task_stops: Vec<TaskStopRow>,
    pub leases: Vec<StoredLease>,
    pub settled: Vec<StoredSettled>,
    pub backoffs: Vec<StoredBackoff>,
    pub past: Vec<PastRow>,
    pub processors: Vec<StoredProcessor>,
    pub last_hosts: Vec<LastHostRow>,
    pub keys: Vec<KeyRow>,
    pub applications: Vec<ApplicationRow>,
    pub application_tasks: Vec<ApplicationTaskRow>,
}

/// Loads all rows that a term needs.
pub async fn load(tx: &mut PgConnection) -> Result<Stored, sqlx::Error> {
    Ok(Stored {
        accounts: accounts::load_all(tx).await?,
        runners: load_runners(tx).await?,
        open: load_open_works(tx).await?,
        final_works: load_final_works(tx).await?,
        done: load_done(tx).await?,
        sums: load_sums(tx).await?,
        usage: load_usage(tx).await?,
        failures: load_failures(tx).await?,
        unrun: cancelled_tasks::load_unrun(tx).await?,
        task_stops: cancelled_tasks::load_stops(tx).await?,
        leases: load_leases(tx).await?,
        settled: load_settled(tx).await?,
        backoffs: load_backoffs(tx).await?,
        past: past_allocations::load_all(tx).await?,
        processors: processors::load_all(tx).await?,
        last_hosts: processors::load_last_hosts(tx).await?,
        keys: load_keys(tx).await?,
        applications: applications::load_applications(tx).await?,
        application_tasks: applications::load_tasks(tx).await?,
    })
}

async fn load_runners(tx: &mut PgConnection) -> Result<Vec<RunnerRow>, sqlx::Error> {
    sqlx::query_as!(RunnerRow, "select id, token from runner")
        .fetch_all(tx)
        .await
}

async fn load_open_works(tx: &mut PgConnection) -> Result<Vec<OpenRow>, sqlx::Error> {
    sqlx::query_as!(
        OpenRow,
        r#"select id, kind, user_name, submitted_at_ms, submission::text as "submission!",
                  traceparent, runner, cancelled_at_ms is not null as "cancelled!",
                  coalesce((select max(number) from event where work = work.id), 0) as "events!",
                  generation, deployed, groups::text as groups, actor
             from work where ended_at_ms is null order by id"#
    )
    .fetch_all(tx)
    .await
}

async fn load_final_works(tx: &mut PgConnection) -> Result<Vec<FinalRow>, sqlx::Error> {
    sqlx::query_as!(
        FinalRow,
        r#"select id, user_name, ended_at_ms as "ended_at_ms!", runner, kind,
                  submission->>'name' as name,
                  coalesce((submission->>'host_affinity')::boolean,
                           (submission->>'standbys')::int > 0, false) as "host_affinity!"
             from work where ended_at_ms is not null order by ended_at_ms, id"#
    )
    .fetch_all(tx)
    .await
}

/// Loads the tasks with an outcome as ranges. In a range of consecutive task numbers, the
/// difference between the task number and the row number is constant. The query groups by this
/// difference.
async fn load_done(tx: &mut PgConnection) -> Result<Vec<DoneRow>, sqlx::Error> {
    sqlx::query_as!(
        DoneRow,
        r#"select job, min(task) as "start!", max(task) + 1 as "stop!"
             from (select o.job, o.task,
                          o.task - row_number() over (partition by o.job order by o.task) as island
                     from outcome o
                     join work w on w.id = o.job and w.ended_at_ms is null) as numbered
            group by job, island"#
    )
    .fetch_all(tx)
    .await
}

async fn load_sums(tx: &mut PgConnection) -> Result<Vec<SumRow>, sqlx::Error> {
    sqlx::query_as!(
        SumRow,
        r#"select o.job,
                  count(*) filter (where not o.succeeded
                                     and o.end_cause is distinct from 'cancelled') as "failed!",
                  count(*) filter (where o.end_cause = 'cancelled') as "cancelled!",
                  least(coalesce(sum(o.duration_us)
                           filter (where o.end_cause is distinct from 'cancelled'), 0),
                      9e18)::bigint as "spent_us!"
             from outcome o join work w on w.id = o.job and w.ended_at_ms is null
            group by o.job"#
    )
    .fetch_all(tx)
    .await
}

/// Loads the usage of counted runs. The buckets are those of `job_usage::Distribution`.
async fn load_usage(tx: &mut PgConnection) -> Result<Vec<UsageRow>, sqlx::Error> {
    sqlx::query_as!(
        UsageRow,
        r#"with run as (
               select job, duration_us, user_us, system_us, max_rss_bytes, peak_memory_bytes
                 from outcome
                where usage_source is not null and end_cause is distinct from 'cancelled'
               union all
               select job, duration_us, user_us, system_us, max_rss_bytes, peak_memory_bytes
                 from attempt where usage_source is not null),
           measured as (
               select run.job, user_us::numeric + system_us as cpu_us,
                      coalesce(duration_us, 0) as wall_us,
                      coalesce(peak_memory_bytes, max_rss_bytes) as memory_bytes
                 from run join work w on w.id = run.job and w.ended_at_ms is null)
           select job as "job!",
                  floor(ln(greatest(memory_bytes, 1)::float8) / ln(2::float8) * 8)::int
                      as "memory_bucket!",
                  floor(ln(greatest(wall_us, 1)::float8) / ln(2::float8) * 8)::int
                      as "wall_bucket!",
                  count(*) as "runs!", least(sum(cpu_us), 9e18)::bigint as "cpu_us!",
                  least(sum(wall_us), 9e18)::bigint as "wall_us!",
                  max(memory_bytes) as "max_memory_bytes!", max(wall_us) as "max_wall_us!"
             from measured group by 1, 2, 3"#
    )
    .fetch_all(tx)
    .await
}

async fn load_failures(tx: &mut PgConnection) -> Result<Vec<FailuresRow>, sqlx::Error> {
    sqlx::query_as!(
        FailuresRow,
        r#"select a.job, a.task, count(*) as "failures!", max(a.retry_at_ms) as retry_at_ms
             from attempt a join work w on w.id = a.job and w.ended_at_ms is null
            group by a.job, a.task"#
    )
    .fetch_all(tx)
    .await
}

async fn load_leases(tx: &mut PgConnection) -> Result<Vec<StoredLease>, sqlx::Error> {
    sqlx::query_as!(
        StoredLease,
        r#"select allocation, job, tasks::text as "tasks!" from lease order by allocation"#
    )
    .fetch_all(tx)
    .await
}

async fn load_settled(tx: &mut PgConnection) -> Result<Vec<StoredSettled>, sqlx::Error> {
    sqlx::query_as!(StoredSettled, "select work, slot, allocation from settled")
        .fetch_all(tx)
        .await
}

async fn load_backoffs(tx: &mut PgConnection) -> Result<Vec<StoredBackoff>, sqlx::Error> {
    sqlx::query_as!(StoredBackoff, "select work, slot, strikes from brake")
        .fetch_all(tx)
        .await
}

async fn load_keys(tx: &mut PgConnection) -> Result<Vec<KeyRow>, sqlx::Error> {
    sqlx::query_as!(
        KeyRow,
        r#"select key, request, at_ms, answer::text as "answer!" from answered order by at_ms"#
    )
    .fetch_all(tx)
    .await
}
