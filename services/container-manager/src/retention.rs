//! Deletes archived containers and output beyond the configured limits. No decision depends on
//! these data, so the deletion bypasses the committer. Only the leading replica deletes (I25).

use std::sync::Arc;
use std::time::Duration;

use hayward_publication::Publisher;
use hayward_service::Shutdown;
use sqlx::PgPool;

use crate::config::Settings;
use crate::store;

/// Checks the limits periodically until the shutdown.
pub async fn trim_periodically(
    pool: PgPool,
    publisher: Arc<Publisher>,
    settings: Settings,
    shutdown: Shutdown,
) {
    let interval = Duration::from_millis(settings.trim_ms.max(1));
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = tokio::time::sleep(interval) => {}
        }
        if publisher.leading().is_ok()
            && let Err(error) = trim(&pool, &settings).await
        {
            tracing::warn!(%error, "cannot trim history");
        }
    }
}

async fn trim(pool: &PgPool, settings: &Settings) -> Result<(), sqlx::Error> {
    let containers = store::container::trim(pool, settings.keep_buried).await?;
    let chunks = store::output::trim(pool, settings.keep_output_bytes).await?;
    if containers + chunks > 0 {
        tracing::debug!(containers, chunks, "trimmed history");
    }
    Ok(())
}
