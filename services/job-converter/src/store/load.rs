//! Rows that a term needs at its start. Outcomes of open jobs are read as ranges, because a job of
//! ten million tasks is mostly one range.

use sqlx::PgConnection;
use uuid::Uuid;

use super::applications::{self, HeadText, TaskText};
use super::keys::KeyRow;
use super::past::{self, PastRow};
use super::processors::{self, KnownRow, LocalityRow};

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

pub struct RunnerRow {
    pub id: String,
    pub token: String,
}

/// Outcomes of tasks `start..stop`.
pub struct DoneRow {
    pub job: Uuid,
    pub start: i64,
    pub stop: i64,
}

pub struct SumRow {
    pub job: Uuid,
    pub failed: i64,
    pub spent_us: i64,
}

pub struct FailuresRow {
    pub job: Uuid,
    pub task: i64,
    pub failures: i64,
}

pub struct HeldRow {
    pub allocation: String,
    pub job: Uuid,
    pub tasks: String,
}

pub struct SlotRow {
    pub work: Uuid,
    pub slot: String,
    pub allocation: String,
}

pub struct StrikesRow {
    pub work: Uuid,
    pub slot: String,
    pub strikes: i32,
}

/// All rows, read in one transaction.
pub struct Stored {
    pub runners: Vec<RunnerRow>,
    pub open: Vec<OpenRow>,
    pub finals: Vec<FinalRow>,
    pub done: Vec<DoneRow>,
    pub sums: Vec<SumRow>,
    pub failures: Vec<FailuresRow>,
    pub leases: Vec<HeldRow>,
    pub settled: Vec<SlotRow>,
    pub strikes: Vec<StrikesRow>,
    pub past: Vec<PastRow>,
    pub processors: Vec<KnownRow>,
    pub localities: Vec<LocalityRow>,
    pub keys: Vec<KeyRow>,
    pub applications: Vec<HeadText>,
    pub application_tasks: Vec<TaskText>,
}

pub async fn stored(tx: &mut PgConnection) -> Result<Stored, sqlx::Error> {
    Ok(Stored {
        runners: runners(tx).await?,
        open: open(tx).await?,
        finals: finals(tx).await?,
        done: done(tx).await?,
        sums: sums(tx).await?,
        failures: failures(tx).await?,
        leases: leases(tx).await?,
        settled: settled(tx).await?,
        strikes: strikes(tx).await?,
        past: past::all(tx).await?,
        processors: processors::all(tx).await?,
        localities: processors::all_localities(tx).await?,
        keys: keys(tx).await?,
        applications: applications::all(tx).await?,
        application_tasks: applications::all_tasks(tx).await?,
    })
}

async fn runners(tx: &mut PgConnection) -> Result<Vec<RunnerRow>, sqlx::Error> {
    sqlx::query_as!(RunnerRow, "select id, token from runner")
        .fetch_all(tx)
        .await
}

async fn open(tx: &mut PgConnection) -> Result<Vec<OpenRow>, sqlx::Error> {
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

async fn finals(tx: &mut PgConnection) -> Result<Vec<FinalRow>, sqlx::Error> {
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

async fn done(tx: &mut PgConnection) -> Result<Vec<DoneRow>, sqlx::Error> {
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

async fn sums(tx: &mut PgConnection) -> Result<Vec<SumRow>, sqlx::Error> {
    sqlx::query_as!(
        SumRow,
        r#"select o.job, count(*) filter (where not o.succeeded) as "failed!",
                  sum(o.duration_us)::bigint as "spent_us!"
             from outcome o join work w on w.id = o.job and w.ended_at_ms is null
            group by o.job"#
    )
    .fetch_all(tx)
    .await
}

async fn failures(tx: &mut PgConnection) -> Result<Vec<FailuresRow>, sqlx::Error> {
    sqlx::query_as!(
        FailuresRow,
        r#"select a.job, a.task, count(*) as "failures!"
             from attempt a join work w on w.id = a.job and w.ended_at_ms is null
            group by a.job, a.task"#
    )
    .fetch_all(tx)
    .await
}

async fn leases(tx: &mut PgConnection) -> Result<Vec<HeldRow>, sqlx::Error> {
    sqlx::query_as!(
        HeldRow,
        r#"select allocation, job, tasks::text as "tasks!" from lease order by allocation"#
    )
    .fetch_all(tx)
    .await
}

async fn settled(tx: &mut PgConnection) -> Result<Vec<SlotRow>, sqlx::Error> {
    sqlx::query_as!(SlotRow, "select work, slot, allocation from settled")
        .fetch_all(tx)
        .await
}

async fn strikes(tx: &mut PgConnection) -> Result<Vec<StrikesRow>, sqlx::Error> {
    sqlx::query_as!(StrikesRow, "select work, slot, strikes from brake")
        .fetch_all(tx)
        .await
}

async fn keys(tx: &mut PgConnection) -> Result<Vec<KeyRow>, sqlx::Error> {
    sqlx::query_as!(
        KeyRow,
        r#"select key, request, at_ms, answer::text as "answer!" from answered order by at_ms"#
    )
    .fetch_all(tx)
    .await
}
