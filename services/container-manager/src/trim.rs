//! Forgetting what nobody has to know any more: buried containers and old output, by number and by
//! size (I25). It is history, so it goes outside the committer and only on the leading replica.

use std::sync::Arc;
use std::time::Duration;

use hayward_publication::Publisher;
use hayward_service::Shutdown;
use sqlx::PgPool;

use crate::config::Settings;
use crate::store;

/// Looks again and again until the shutdown.
pub async fn keep_bounded(
    pool: PgPool,
    publisher: Arc<Publisher>,
    settings: Settings,
    shutdown: Shutdown,
) {
    let pause = Duration::from_millis(settings.trim_ms.max(1));
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = tokio::time::sleep(pause) => {}
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
    let pieces = store::output::trim(pool, settings.keep_output_bytes).await?;
    if containers + pieces > 0 {
        tracing::debug!(containers, pieces, "trimmed history");
    }
    Ok(())
}
