//! Rows of timeline entries, which users read as the history of their work.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// One entry of a timeline.
pub struct EventRow {
    pub work: Uuid,
    /// Position in the timeline of the work, from 1.
    pub number: i32,
    pub at_ms: i64,
    pub revision: i64,
    pub event: String,
}

pub async fn insert(tx: &mut PgConnection, rows: &[EventRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let works: Vec<Uuid> = rows.iter().map(|row| row.work).collect();
    let numbers: Vec<i32> = rows.iter().map(|row| row.number).collect();
    let at: Vec<i64> = rows.iter().map(|row| row.at_ms).collect();
    let revisions: Vec<i64> = rows.iter().map(|row| row.revision).collect();
    let events: Vec<String> = rows.iter().map(|row| row.event.clone()).collect();
    sqlx::query!(
        "insert into event (work, number, at_ms, revision, event)
         select * from unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::text[])",
        &works,
        &numbers,
        &at,
        &revisions,
        &events
    )
    .execute(tx)
    .await
    .map(drop)
}

pub async fn load_events(pool: &PgPool, work: Uuid) -> Result<Vec<EventRow>, sqlx::Error> {
    sqlx::query_as!(
        EventRow,
        "select work, number, at_ms, revision, event from event where work = $1 order by number",
        work
    )
    .fetch_all(pool)
    .await
}
