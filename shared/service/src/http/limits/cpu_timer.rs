//! CPU time of a future: the time of its thread while it is polled, without waiting.

use std::pin::pin;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Runs a future and returns its output with its CPU time.
pub(crate) async fn with_cpu_time<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = pin!(future);
    let mut spent = Duration::ZERO;
    let output = std::future::poll_fn(|cx| {
        let before = thread_cpu_time();
        let poll = future.as_mut().poll(cx);
        spent += thread_cpu_time().saturating_sub(before);
        poll
    });
    let output = output.await;
    (output, spent)
}

/// Returns the CPU time of this thread. Returns zero if the system has no such clock.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN_TIME: Duration = Duration::from_millis(20);

    fn spin() {
        let began = thread_cpu_time();
        while thread_cpu_time().saturating_sub(began) < SPIN_TIME {
            std::hint::spin_loop();
        }
    }

    #[tokio::test]
    async fn work_counts_and_waiting_does_not() {
        let ((), spin_cpu_time) = with_cpu_time(async { spin() }).await;
        assert!(spin_cpu_time >= SPIN_TIME, "{spin_cpu_time:?}");
        let (result, wait_cpu_time) = with_cpu_time(tokio::task::spawn_blocking(spin)).await;
        result.unwrap();
        assert!(wait_cpu_time < SPIN_TIME, "{wait_cpu_time:?}");
    }
}
