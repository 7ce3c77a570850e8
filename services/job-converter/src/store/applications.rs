//! Rows of applications, and of their tasks and placeholders. Each row has one JSON document, and
//! is written when the document changed.

use sqlx::PgConnection;
use uuid::Uuid;

/// Row of an application.
pub struct ApplicationRow {
    pub uuid: Uuid,
    /// Id that the submitter chose.
    pub id: String,
    pub user: String,
    /// All other state of the application, as JSON.
    pub body: String,
}

/// Row of a task or placeholder.
pub struct ApplicationTaskRow {
    pub application: Uuid,
    /// Id of the task in its application.
    pub id: String,
    /// All other state of the task, as JSON.
    pub body: String,
}

/// Writes rows of applications. Each application may occur once.
pub async fn upsert(tx: &mut PgConnection, rows: &[ApplicationRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let uuids: Vec<Uuid> = rows.iter().map(|row| row.uuid).collect();
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    let users: Vec<String> = rows.iter().map(|row| row.user.clone()).collect();
    let bodies: Vec<String> = rows.iter().map(|row| row.body.clone()).collect();
    sqlx::query!(
        "insert into application (number, id, user_name, body)
         select new.number, new.id, new.user_name, new.body::json
           from unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
             as new (number, id, user_name, body)
         on conflict (number) do update set body = excluded.body",
        &uuids,
        &ids,
        &users,
        &bodies
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Writes rows of tasks. Each task may occur once.
pub async fn upsert_tasks(
    tx: &mut PgConnection,
    rows: &[ApplicationTaskRow],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let applications: Vec<Uuid> = rows.iter().map(|row| row.application).collect();
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    let bodies: Vec<String> = rows.iter().map(|row| row.body.clone()).collect();
    sqlx::query!(
        "insert into application_task (application, id, body)
         select new.application, new.id, new.body::json
           from unnest($1::uuid[], $2::text[], $3::text[]) as new (application, id, body)
         on conflict (application, id) do update set body = excluded.body",
        &applications,
        &ids,
        &bodies
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn delete_tasks(
    tx: &mut PgConnection,
    deleted: &[(Uuid, String)],
) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    let (applications, ids): (Vec<Uuid>, Vec<String>) = deleted.iter().cloned().unzip();
    sqlx::query!(
        "delete from application_task using unnest($1::uuid[], $2::text[]) as gone (number, task)
          where application_task.application = gone.number and application_task.id = gone.task",
        &applications,
        &ids
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Deletes applications with all their tasks.
pub async fn delete(tx: &mut PgConnection, deleted: &[Uuid]) -> Result<(), sqlx::Error> {
    if deleted.is_empty() {
        return Ok(());
    }
    sqlx::query!("delete from application where number = any($1)", deleted)
        .execute(tx)
        .await
        .map(drop)
}

pub async fn load_applications(tx: &mut PgConnection) -> Result<Vec<ApplicationRow>, sqlx::Error> {
    sqlx::query_as!(
        ApplicationRow,
        r#"select number as uuid, id, user_name as "user", body::text as "body!" from application
            order by id"#
    )
    .fetch_all(tx)
    .await
}

pub async fn load_tasks(tx: &mut PgConnection) -> Result<Vec<ApplicationTaskRow>, sqlx::Error> {
    sqlx::query_as!(
        ApplicationTaskRow,
        r#"select application, id, body::text as "body!" from application_task
            order by application, id"#
    )
    .fetch_all(tx)
    .await
}
