//! The database's clock (section 4, rule 4): it decides when an item is over, whichever replica
//! looks, so a change of leader neither prolongs an item nor shortens it.
//!
//! Asking the database at every look would cost a round trip each; instead the difference from this
//! machine's clock is measured once in a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hayward_service::clock::{Clock, SystemClock};
use hayward_service::shutdown::Shutdown;
use hayward_vocabulary::Timestamp;
use sqlx::PgPool;

use crate::store;

const MEASURE_EVERY: Duration = Duration::from_secs(10);
/// Milliseconds: a difference as small as this is the measurement's own error.
const ERROR_MS: i64 = 5;

#[derive(Debug, Default)]
pub struct DatabaseClock {
    ahead_ms: AtomicI64,
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let here = SystemClock.now().unix_ms();
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        Timestamp::from_unix_ms(here.saturating_add(ahead))
    }
}

impl DatabaseClock {
    /// A clock that has been measured once.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn of(pool: &PgPool) -> Result<Arc<Self>, sqlx::Error> {
        let clock = Arc::new(Self::default());
        clock.measure(pool).await?;
        Ok(clock)
    }

    /// Measures again and again until shutdown. While the database is away the last measure holds.
    pub async fn keep(self: Arc<Self>, pool: PgPool, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(MEASURE_EVERY) => {}
                () = shutdown.wait() => return,
            }
            if let Err(error) = self.measure(&pool).await {
                tracing::debug!(%error, "the database's clock cannot be read");
            }
        }
    }

    async fn measure(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let before = SystemClock.now().unix_ms();
        let there = store::now_ms(pool).await?;
        let after = SystemClock.now().unix_ms();
        self.ahead_ms
            .store(difference(before, there, after), Ordering::Relaxed);
        Ok(())
    }
}

/// How far the other clock is ahead, which was read between two looks at this one.
fn difference(before: i64, there: i64, after: i64) -> i64 {
    let ahead = there - i64::midpoint(before, after);
    let error = ERROR_MS.max(after - before);
    if ahead.abs() <= error { 0 } else { ahead }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_within_the_error_is_none() {
        assert_eq!(difference(1_000, 1_003, 1_002), 0);
        assert_eq!(difference(1_000, 1_040, 1_100), 0, "the answer took long");
        assert_eq!(difference(1_000, 61_001, 1_002), 60_000);
        assert_eq!(difference(61_000, 1_001, 61_002), -60_000);
    }
}
