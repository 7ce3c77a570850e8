//! Deletes the history of forgotten work in small batches outside the commits, because a job may
//! have ten million outcomes. These rows are not part of the working set, so an old leader may also
//! delete them.

use std::time::Duration;

use hayward_publication::Publisher;
use hayward_service::Shutdown;
use sqlx::PgPool;

const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of rows per statement.
const BATCH_SIZE: i64 = 5_000;

/// Runs while this replica leads, until shutdown.
pub async fn run(pool: PgPool, publisher: std::sync::Arc<Publisher>, shutdown: Shutdown) {
    loop {
        let mut has_more = false;
        if publisher.leading().is_ok() {
            match delete_batch(&pool).await {
                Ok(found_some) => has_more = found_some,
                Err(error) => tracing::warn!(%error, "cannot delete old history"),
            }
        }
        let pause = if has_more {
            Duration::from_millis(20)
        } else {
            CHECK_INTERVAL
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.wait() => return,
        }
    }
}

/// Deletes one batch of the history of one piece of work. Returns false if there was none.
async fn delete_batch(pool: &PgPool) -> Result<bool, sqlx::Error> {
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
        BATCH_SIZE
    )
    .execute(&mut *tx)
    .await?
    .rows_affected();
    if outcomes == 0 {
        sqlx::query!("delete from attempt where job = $1", work)
            .execute(&mut *tx)
            .await?;
        sqlx::query!("delete from unrun where job = $1", work)
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
