//! The writer's lease: one row with holder, epoch and expiry. Only the clock of the database
//! decides about the expiry (R4).

use std::time::{Duration, Instant};

use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use crate::WentBack;

/// A term of leadership.
#[derive(Debug, Clone, Copy)]
pub struct Term {
    pub epoch: i64,
    pub lineage: Uuid,
    pub revision: i64,
    /// Monotonic deadline of the lease. It counts from before the request was sent, so it is never
    /// later than the expiry by the clock of the database.
    pub until: Instant,
}

fn millis(ttl: Duration) -> f64 {
    ttl.as_secs_f64() * 1000.0
}

/// Acquires a free or expired lease. Returns `None` while another replica holds it or an operator
/// must decide.
pub async fn acquire(
    pool: &PgPool,
    holder: &str,
    ttl: Duration,
) -> Result<Option<Term>, sqlx::Error> {
    let started = Instant::now();
    let row = sqlx::query!(
        "update writer
            set epoch = epoch + 1, holder = $1,
                expires_at = clock_timestamp() + $2 * interval '1 millisecond'
          where expires_at < clock_timestamp() and went_back is null
         returning epoch, lineage, revision",
        holder,
        millis(ttl)
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|row| Term {
        epoch: row.epoch,
        lineage: row.lineage,
        revision: row.revision,
        until: started + ttl,
    }))
}

/// Renews the lease. Returns false if it is lost or the rows are not those of the last commit (R9).
pub async fn renew(
    database: impl PgExecutor<'_>,
    epoch: i64,
    revision: i64,
    ttl: Duration,
) -> Result<bool, sqlx::Error> {
    let result = sqlx::query!(
        "update writer set expires_at = clock_timestamp() + $2 * interval '1 millisecond'
          where epoch = $1 and revision = $3",
        epoch,
        millis(ttl),
        revision
    )
    .execute(database)
    .await?;
    Ok(result.rows_affected() == 1)
}

/// Releases the lease, so that another replica need not wait for its expiry.
pub async fn release(pool: &PgPool, epoch: i64) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update writer set expires_at = '-infinity' where epoch = $1",
        epoch
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Executes the last statement of each commit. It raises the revision if the lease is still held
/// and no other replica wrote. Returns false if the transaction must be rolled back (I7).
pub async fn fence(
    connection: &mut sqlx::PgConnection,
    epoch: i64,
    revision: i64,
    ttl: Duration,
) -> Result<bool, sqlx::Error> {
    let result = sqlx::query!(
        "update writer
            set revision = $2, expires_at = clock_timestamp() + $3 * interval '1 millisecond'
          where epoch = $1 and revision + 1 = $2",
        epoch,
        revision,
        millis(ttl)
    )
    .execute(connection)
    .await?;
    Ok(result.rows_affected() == 1)
}

/// The history of the rows, and the evidence that it went back in time. The evidence is `None` if
/// it did not.
#[derive(Debug)]
pub struct History {
    pub lineage: Uuid,
    pub went_back: Option<String>,
}

/// Reads the lineage, and whether the history is stopped.
pub async fn read_history(pool: &PgPool) -> Result<History, sqlx::Error> {
    sqlx::query_as!(History, "select lineage, went_back from writer")
        .fetch_one(pool)
        .await
}

/// Stops this history for every process, until an operator decides (R9).
pub async fn stop_history(pool: &PgPool, lineage: Uuid, evidence: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "update writer set went_back = $2, expires_at = '-infinity'
          where lineage = $1 and went_back is null",
        lineage,
        evidence
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Returns evidence that the rows are older than what this process has seen (R9).
pub fn detect_older_rows(
    term: &Term,
    last_term: Option<&Term>,
    seen_revision: i64,
) -> Option<WentBack> {
    let last_term = last_term.filter(|last| last.lineage == term.lineage)?;
    let evidence = if term.revision < seen_revision {
        format!(
            "this service has seen revision {seen_revision}, the database holds {}",
            term.revision
        )
    } else if term.epoch <= last_term.epoch {
        format!(
            "this service has led in term {}, the database gives out {} once more",
            last_term.epoch, term.epoch
        )
    } else {
        return None;
    };
    let lineage = term.lineage;
    Some(WentBack { lineage, evidence })
}
