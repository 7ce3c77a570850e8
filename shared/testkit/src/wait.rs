//! Waits for a state, the only kind of wait in tests.

use std::time::{Duration, Instant};

/// Timeout, which is far longer than any state takes on a busy node. Reaching it means that the
/// state never comes.
const LIMIT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `probe` until it returns a value, and returns that.
///
/// # Panics
/// If `what` did not happen within a minute and a half.
pub async fn until<T>(what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(what, LIMIT, probe).await
}

/// Waits as [`until`] does, with its own limit, for states that take longer.
///
/// # Panics
/// If `what` did not happen within `limit`.
pub async fn until_within<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
