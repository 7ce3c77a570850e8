//! Repeats requests while faults happen.

use std::time::Duration;

use hayward_service::{ClientError, Code};
use tokio::time::{Instant, sleep_until};

use crate::fleet::TIMEOUT;

const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Repeats a request until it succeeds, is refused for good, or the time is over.
pub async fn retry_until_final<T>(
    mut request: impl AsyncFnMut() -> Result<T, ClientError>,
) -> Result<T, String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let error = match request().await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if is_final(&error) || Instant::now() >= deadline {
            return Err(format_error(&error));
        }
        sleep_until(Instant::now() + RETRY_INTERVAL).await;
    }
}

fn format_error(error: &ClientError) -> String {
    match error.problem() {
        Some(problem) => format!(
            "{:?}: {} {:?}",
            problem.code, problem.detail, problem.errors
        ),
        None => format!("{error:?}"),
    }
}

/// Returns whether a retry is useless. A refused token is retried, because a service whose clock is
/// wrong refuses valid tokens.
fn is_final(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| {
        let is_temporary = problem.retryable || problem.retry_after_ms.is_some();
        problem.status().is_client_error() && !is_temporary && problem.code != Code::Unauthenticated
    })
}
