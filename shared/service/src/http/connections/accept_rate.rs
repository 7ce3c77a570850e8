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
    /// Time at which all connections so far would be accepted at the fixed rate.
    until: Option<Instant>,
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

    fn wait(&mut self, now: Instant) -> Duration {
        let until = self.until.map_or(now, |until| until.max(now)) + INTERVAL;
        self.until = Some(until);
        let wait = (until - now).saturating_sub(INTERVAL * BURST);
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
        let mut most_in_a_row = 0;
        let mut in_a_row = 0;
        for number in 0..10_000 {
            let wait = rate.wait(now);
            if number < BURST {
                assert_eq!(wait, Duration::ZERO, "{number}");
                continue;
            }
            in_a_row = if wait.is_zero() { in_a_row + 1 } else { 0 };
            most_in_a_row = most_in_a_row.max(in_a_row);
            now += wait;
        }
        assert!(most_in_a_row <= 8, "{most_in_a_row}");
        let took = now - began;
        let even = INTERVAL * (10_000 - BURST);
        assert!(
            took <= even && took + TIMER_RESOLUTION * 2 > even,
            "{took:?}"
        );
        // The burst is available again after a quiet time.
        now += INTERVAL * BURST + TIMER_RESOLUTION;
        let again = (0..BURST).map(|_| rate.wait(now));
        assert!(again.into_iter().all(|wait| wait.is_zero()));
    }
}
