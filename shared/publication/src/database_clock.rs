//! The clock of a service is the clock of its database, shared by all replicas. It decides when a
//! block, a token or a deadline expires. A change of leader or a wrong system clock therefore
//! changes no expiry (F23).
//!
//! The clock of the database is read periodically. Between the reads, the monotonic system clock
//! measures the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use hayward_service::runtime::clock::Clock;
use hayward_service::runtime::shutdown::Shutdown;
use hayward_vocabulary::Timestamp;
use sqlx::PgPool;

const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Differences up to this are always ignored, in milliseconds. They can be measurement errors.
const MIN_ERROR_MS: i64 = 5;

#[derive(Debug)]
pub struct DatabaseClock {
    started: Instant,
    /// Time of the database when this clock began, in milliseconds since 1970.
    start_ms: AtomicI64,
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let start_ms = self.start_ms.load(Ordering::Relaxed);
        Timestamp::from_unix_ms(start_ms.saturating_add(self.elapsed_ms()))
    }
}

impl DatabaseClock {
    /// Measures the start time, and repeats the measurement until the shutdown. While the database
    /// is down, the last start time stays.
    ///
    /// # Errors
    /// If the database does not respond.
    pub async fn start(pool: &PgPool, shutdown: &Shutdown) -> Result<Arc<Self>, sqlx::Error> {
        let clock = Arc::new(Self {
            started: Instant::now(),
            start_ms: AtomicI64::new(0),
        });
        clock.measure(pool).await?;
        tokio::spawn(Arc::clone(&clock).measure_forever(pool.clone(), shutdown.clone()));
        Ok(clock)
    }

    async fn measure_forever(self: Arc<Self>, pool: PgPool, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(MEASURE_INTERVAL) => {}
                () = shutdown.wait() => return,
            }
            if let Err(error) = self.measure(&pool).await {
                tracing::debug!(%error, "the database's clock cannot be read");
            }
        }
    }

    async fn measure(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let before = self.elapsed_ms();
        let database_ms = now_ms(pool).await?;
        let after = self.elapsed_ms();
        let current = self.start_ms.load(Ordering::Relaxed);
        let start_ms = correct_start_ms(current, before, database_ms, after);
        self.start_ms.store(start_ms, Ordering::Relaxed);
        Ok(())
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// Returns the milliseconds since 1970 by the clock of the database.
async fn now_ms(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select (extract(epoch from clock_timestamp()) * 1000)::bigint as "now!""#
    )
    .fetch_one(pool)
    .await
}

/// Returns the new start time after a measurement. `database_ms` is the time of the database
/// between the two local times `before` and `after`.
fn correct_start_ms(current: i64, before: i64, database_ms: i64, after: i64) -> i64 {
    let start_ms = database_ms - i64::midpoint(before, after);
    let error = MIN_ERROR_MS.max(after - before);
    if (start_ms - current).abs() <= error {
        current
    } else {
        start_ms
    }
}

#[cfg(test)]
mod tests {
    use super::correct_start_ms;

    #[test]
    fn a_difference_within_the_error_is_ignored() {
        let current = 1_000_000;
        assert_eq!(correct_start_ms(current, 1_000, 1_001_003, 1_002), current);
        let slow = correct_start_ms(current, 1_000, 1_001_080, 1_100);
        assert_eq!(slow, current, "the answer took long");
        assert_eq!(
            correct_start_ms(current, 1_000, 1_061_001, 1_002),
            current + 60_000
        );
        assert_eq!(
            correct_start_ms(current, 61_000, 1_001_001, 61_002),
            current - 60_000
        );
    }
}
