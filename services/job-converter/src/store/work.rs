//! Rows of submitted work, with its changes, its cancellation and its end. Also the tokens of its
//! runners.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

/// A token with which runners lease tasks. Jobs of one user may share a token.
pub struct RunnerRow {
    /// Id of the first job that used the token.
    pub id: String,
    pub token: String,
}

/// Work as submitted.
pub struct WorkRow {
    pub id: Uuid,
    pub kind: &'static str,
    pub user: String,
    pub actor: Option<String>,
    pub submitted_at_ms: i64,
    /// The request as JSON.
    pub submission: String,
    /// W3C trace context of the submission.
    pub traceparent: Option<String>,
    /// Id of the token of its runners. `None` unless it is a job.
    pub runner: Option<String>,
    /// JSON list of the user's groups. `None` without groups.
    pub groups: Option<String>,
}

/// Work of one batch, accepted at one revision.
#[derive(Default)]
pub struct Submitted {
    pub revision: i64,
    pub rows: Vec<WorkRow>,
}

/// A changed service.
pub struct ChangedServiceRow {
    pub id: Uuid,
    /// The changed request as JSON.
    pub submission: String,
    pub generation: i32,
    pub deployed: i32,
}

/// Work that its user cancelled.
pub struct CancelledRow {
    pub id: Uuid,
    pub at_ms: i64,
}

/// Work that has ended.
pub struct EndedRow {
    pub id: Uuid,
    pub state: &'static str,
    pub reason: Option<String>,
    pub at_ms: i64,
}

pub async fn insert_runners(tx: &mut PgConnection, rows: &[RunnerRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let (ids, tokens): (Vec<_>, Vec<_>) = rows
        .iter()
        .map(|row| (row.id.clone(), row.token.clone()))
        .unzip();
    sqlx::query!(
        "insert into runner (id, token) select * from unnest($1::text[], $2::text[])
         on conflict (id) do nothing",
        &ids,
        &tokens
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete_runners(tx: &mut PgConnection, ids: &[String]) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from runner where id = any($1)", ids)
        .execute(tx)
        .await
        .map(drop)
}

pub async fn insert(tx: &mut PgConnection, submitted: &Submitted) -> Result<(), sqlx::Error> {
    let rows = &submitted.rows;
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let kinds: Vec<String> = rows.iter().map(|row| row.kind.to_owned()).collect();
    let users: Vec<String> = rows.iter().map(|row| row.user.clone()).collect();
    let at: Vec<i64> = rows.iter().map(|row| row.submitted_at_ms).collect();
    let texts: Vec<String> = rows.iter().map(|row| row.submission.clone()).collect();
    let traces: Vec<Option<String>> = rows.iter().map(|row| row.traceparent.clone()).collect();
    let runners: Vec<Option<String>> = rows.iter().map(|row| row.runner.clone()).collect();
    let actors: Vec<Option<String>> = rows.iter().map(|row| row.actor.clone()).collect();
    let groups: Vec<Option<String>> = rows.iter().map(|row| row.groups.clone()).collect();
    sqlx::query!(
        "insert into work (id, kind, user_name, submitted_at_ms, revision, submission,
                           traceparent, runner, groups, actor)
         select new.id, new.kind, new.user_name, new.at, $9, new.body::json, new.trace,
                new.runner, new.groups::json, new.actor
           from unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[],
                       $7::text[], $8::text[], $10::text[])
             as new (id, kind, user_name, at, body, trace, runner, groups, actor)",
        &ids,
        &kinds,
        &users,
        &at,
        &texts,
        &traces as &[Option<String>],
        &runners as &[Option<String>],
        &groups as &[Option<String>],
        submitted.revision,
        &actors as &[Option<String>]
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Writes changed services. The last change of each service counts.
pub async fn update_services(
    tx: &mut PgConnection,
    rows: &[ChangedServiceRow],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let last: BTreeMap<Uuid, &ChangedServiceRow> = rows.iter().map(|row| (row.id, row)).collect();
    let ids: Vec<Uuid> = last.keys().copied().collect();
    let texts: Vec<String> = last.values().map(|row| row.submission.clone()).collect();
    let generations: Vec<i32> = last.values().map(|row| row.generation).collect();
    let deployed: Vec<i32> = last.values().map(|row| row.deployed).collect();
    sqlx::query!(
        "update work set submission = new.body::json, generation = new.generation,
                deployed = new.deployed
           from unnest($1::uuid[], $2::text[], $3::int[], $4::int[])
             as new (id, body, generation, deployed)
          where work.id = new.id",
        &ids,
        &texts,
        &generations,
        &deployed
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn cancel(tx: &mut PgConnection, rows: &[CancelledRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let (ids, at): (Vec<Uuid>, Vec<i64>) = rows.iter().map(|row| (row.id, row.at_ms)).unzip();
    sqlx::query!(
        "update work set cancelled_at_ms = new.at
           from unnest($1::uuid[], $2::bigint[]) as new (id, at) where work.id = new.id",
        &ids,
        &at
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Stores the end of work and deletes the rows that only open work needs.
pub async fn end(tx: &mut PgConnection, rows: &[EndedRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let states: Vec<String> = rows.iter().map(|row| row.state.to_owned()).collect();
    let reasons: Vec<Option<String>> = rows.iter().map(|row| row.reason.clone()).collect();
    let at: Vec<i64> = rows.iter().map(|row| row.at_ms).collect();
    sqlx::query!(
        "update work set state = new.state, reason = new.reason, ended_at_ms = new.at
           from unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[])
             as new (id, state, reason, at)
          where work.id = new.id",
        &ids,
        &states,
        &reasons as &[Option<String>],
        &at
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!("delete from lease where job = any($1)", &ids)
        .execute(&mut *tx)
        .await?;
    super::cancelled_tasks::delete_stops(tx, &ids).await?;
    sqlx::query!("delete from past where job = any($1)", &ids)
        .execute(&mut *tx)
        .await?;
    sqlx::query!("delete from settled where work = any($1)", &ids)
        .execute(&mut *tx)
        .await?;
    sqlx::query!("delete from processor where work = any($1)", &ids)
        .execute(&mut *tx)
        .await?;
    sqlx::query!("delete from brake where work = any($1)", &ids)
        .execute(tx)
        .await
        .map(drop)
}

/// Deletes work. Its history is deleted later, in small batches.
pub async fn delete(tx: &mut PgConnection, ids: &[Uuid]) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into forgotten (work) select * from unnest($1::uuid[])",
        ids
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!("delete from work where id = any($1)", ids)
        .execute(tx)
        .await
        .map(drop)
}

/// First entry of a timeline.
pub struct TimelineStart {
    pub submitted_at_ms: i64,
    pub revision: i64,
}

pub async fn load_timeline_start(
    pool: &sqlx::PgPool,
    id: Uuid,
) -> Result<Option<TimelineStart>, sqlx::Error> {
    sqlx::query_as!(
        TimelineStart,
        "select submitted_at_ms, revision from work where id = $1",
        id
    )
    .fetch_optional(pool)
    .await
}

/// Current submission and generation.
pub struct CurrentSubmission {
    pub submission: String,
    pub generation: i32,
}

pub async fn load_current_submission(
    pool: &sqlx::PgPool,
    id: Uuid,
) -> Result<Option<CurrentSubmission>, sqlx::Error> {
    sqlx::query_as!(
        CurrentSubmission,
        r#"select submission::text as "submission!", generation from work where id = $1"#,
        id
    )
    .fetch_optional(pool)
    .await
}
