//! Deletes the history of forgotten work in small pieces outside the commits, because a job may
//! have ten million outcomes. These rows are not part of the working set, so no fence is needed.

use std::time::Duration;

use hayward_publication::Publisher;
use hayward_service::Shutdown;
use sqlx::PgPool;

const PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of rows per statement.
const PIECE: i64 = 5_000;

/// Runs while this replica leads, until shutdown.
pub async fn run(pool: PgPool, publisher: std::sync::Arc<Publisher>, shutdown: Shutdown) {
    loop {
        let mut more = false;
        if publisher.leading().is_ok() {
            match piece(&pool).await {
                Ok(any) => more = any,
                Err(error) => tracing::warn!(%error, "cannot delete old history"),
            }
        }
        let pause = if more {
            Duration::from_millis(20)
        } else {
            PAUSE
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.wait() => return,
        }
    }
}

/// Deletes one piece of the history of one piece of work. Returns false if there was none.
async fn piece(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let Some(work) = sqlx::query_scalar!("select work from forgotten limit 1")
        .fetch_optional(pool)
        .await?
    else {
        return Ok(false);
    };
    let mut tx = pool.begin().await?;
    let outcomes = sqlx::query!(
        "delete from outcome where job = $1 and task in
            (select task from outcome where job = $1 order by task limit $2)",
        work,
        PIECE
    )
    .execute(&mut *tx)
    .await?
    .rows_affected();
    if outcomes == 0 {
        sqlx::query!("delete from attempt where job = $1", work)
            .execute(&mut *tx)
            .await?;
        sqlx::query!("delete from event where work = $1", work)
            .execute(&mut *tx)
            .await?;
        sqlx::query!("delete from forgotten where work = $1", work)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(true)
}
