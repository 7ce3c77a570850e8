//! The clock of a service is its database's (section 4, rule 4): one for all of its replicas, and
//! for all services of a fleet that share a server. It decides when an item, a token or a deadline
//! is over, so a change of leader neither prolongs nor shortens one, and a wrong clock of the
//! machine that a service runs on changes nothing (F23).
//!
//! Asking the database at every look would cost a round trip each; instead it is asked once in a
//! while, and in between the monotonic clock of this machine says how much time has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use hayward_service::runtime::clock::Clock;
use hayward_service::runtime::shutdown::Shutdown;
use hayward_vocabulary::Timestamp;
use sqlx::PgPool;

const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Milliseconds: a difference as small as this is the measurement's own error.
const MIN_ERROR_MS: i64 = 5;

#[derive(Debug)]
pub struct DatabaseClock {
    begun: Instant,
    /// What the database's clock showed when this one began.
    begun_at_ms: AtomicI64,
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let begun_at = self.begun_at_ms.load(Ordering::Relaxed);
        Timestamp::from_unix_ms(begun_at.saturating_add(self.elapsed_ms()))
    }
}

impl DatabaseClock {
    /// A clock that has been measured once, and is measured again and again until the shutdown.
    /// While the database is away the last measure holds.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn start(pool: &PgPool, shutdown: &Shutdown) -> Result<Arc<Self>, sqlx::Error> {
        let clock = Arc::new(Self {
            begun: Instant::now(),
            begun_at_ms: AtomicI64::new(0),
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
        let there = now_ms(pool).await?;
        let after = self.elapsed_ms();
        let current = self.begun_at_ms.load(Ordering::Relaxed);
        let measured = corrected(current, (before, there, after));
        self.begun_at_ms.store(measured, Ordering::Relaxed);
        Ok(())
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// Milliseconds since 1970 by the database's clock.
async fn now_ms(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select (extract(epoch from clock_timestamp()) * 1000)::bigint as "now!""#
    )
    .fetch_one(pool)
    .await
}

/// When this clock began, by the other one, which was read between two looks at this one.
fn corrected(current: i64, (before, there, after): (i64, i64, i64)) -> i64 {
    let measured = there - i64::midpoint(before, after);
    let error = MIN_ERROR_MS.max(after - before);
    if (measured - current).abs() <= error {
        current
    } else {
        measured
    }
}

#[cfg(test)]
mod tests {
    use super::corrected;

    #[test]
    fn a_difference_within_the_error_is_none() {
        let current = 1_000_000;
        assert_eq!(corrected(current, (1_000, 1_001_003, 1_002)), current);
        let slow = (1_000, 1_001_080, 1_100);
        assert_eq!(corrected(current, slow), current, "the answer took long");
        assert_eq!(
            corrected(current, (1_000, 1_061_001, 1_002)),
            current + 60_000
        );
        assert_eq!(
            corrected(current, (61_000, 1_001_001, 61_002)),
            current - 60_000
        );
    }
}
