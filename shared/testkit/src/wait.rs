//! Waiting for a state, the only kind of waiting tests do.

use std::time::{Duration, Instant};

/// Far beyond what any state takes on a busy machine: reaching it means the state never comes.
const LIMIT: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Looks until `look` finds something, and returns it.
///
/// # Panics
/// When `what` did not come about within a minute and a half.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(what, LIMIT, look).await
}

/// The same with a limit of its own, for states that honestly take longer.
///
/// # Panics
/// When `what` did not come about within `limit`.
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
