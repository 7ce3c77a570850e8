//! Rate limit for accepting connections. Accepting takes CPU time, so thousands of new connections
//! would delay all requests in progress. After a burst, connections are accepted at a fixed rate
//! (G13).

use std::time::{Duration, Instant};

/// Connections that are accepted without a pause.
const BURST: u32 = 64;
/// Time between two connections after the burst. Ten thousand agents reconnect in 1.25 s.
const INTERVAL: Duration = Duration::from_micros(125);
/// Resolution of the timer of the runtime. A shorter wait is skipped.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Rate of accepted connections of one server.
#[derive(Default)]
pub(crate) struct AcceptRate {
    /// Time at which all connections so far would be accepted at the fixed rate. `None` before the
    /// first connection.
    scheduled_until: Option<Instant>,
}

impl AcceptRate {
    /// Lets other tasks run, and waits until the next accept is due. Call it after each accept.
    pub(crate) async fn pause(&mut self) {
        let wait = self.wait(Instant::now());
        if wait.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a connection, and returns the wait before the next accept.
    fn wait(&mut self, now: Instant) -> Duration {
        let scheduled_until = self
            .scheduled_until
            .map_or(now, |scheduled_until| scheduled_until.max(now))
            + INTERVAL;
        self.scheduled_until = Some(scheduled_until);
        let wait = (scheduled_until - now).saturating_sub(INTERVAL * BURST);
        if wait < TIMER_RESOLUTION {
            Duration::ZERO
        } else {
            wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_are_accepted_evenly_and_a_few_at_once() {
        let began = Instant::now();
        let (mut rate, mut now) = (AcceptRate::default(), began);
        let mut most_without_wait = 0;
        let mut without_wait = 0;
        for number in 0..10_000 {
            let wait = rate.wait(now);
            if number < BURST {
                assert_eq!(wait, Duration::ZERO, "{number}");
                continue;
            }
            without_wait = if wait.is_zero() { without_wait + 1 } else { 0 };
            most_without_wait = most_without_wait.max(without_wait);
            now += wait;
        }
        assert!(most_without_wait <= 8, "{most_without_wait}");
        let elapsed = now - began;
        let expected = INTERVAL * (10_000 - BURST);
        assert!(
            elapsed <= expected && elapsed + TIMER_RESOLUTION * 2 > expected,
            "{elapsed:?}"
        );
        // The burst is available again after a quiet time.
        now += INTERVAL * BURST + TIMER_RESOLUTION;
        let after_pause = (0..BURST).map(|_| rate.wait(now));
        assert!(after_pause.into_iter().all(|wait| wait.is_zero()));
    }
}
