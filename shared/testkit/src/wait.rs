//! Waits for a state, the only kind of wait in tests.

use std::time::{Duration, Instant};

/// Far longer than any state takes on a busy machine. Reaching it means that the state never comes.
const LIMIT: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Polls `look` until it returns a value, and returns that.
///
/// # Panics
/// If `what` did not happen within a minute and a half.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(what, LIMIT, look).await
}

/// Waits as [`until`] does, with its own limit, for states that take longer.
///
/// # Panics
/// If `what` did not happen within `limit`.
pub async fn until_within<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
