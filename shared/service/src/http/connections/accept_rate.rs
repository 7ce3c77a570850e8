//! How fast connections are let in. Letting one in is work as well, and thousands that come at once
//! (F39), or again for each request (F40), would have it done before anything else. So after a
//! crowd of some size they come in evenly, and in between are those who are in already (G13).

use std::time::{Duration, Instant};

/// So many come in as they come.
const BURST: u32 = 64;
/// Between two of those after them: ten thousand agents are back in a second and a quarter.
const INTERVAL: Duration = Duration::from_micros(125);
/// The clock of the runtime has milliseconds; who is due within one is due.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The door of one server.
#[derive(Default)]
pub(crate) struct AcceptRate {
    /// When all who came have come in, one after the other.
    until: Option<Instant>,
}

impl AcceptRate {
    /// After each that was let in: everybody who is ready has a turn, and the next one waits until
    /// it is due.
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
    fn f39_a_crowd_comes_in_evenly_and_a_few_at_once() {
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
        // After a quiet while as before.
        now += INTERVAL * BURST + TIMER_RESOLUTION;
        let again = (0..BURST).map(|_| rate.wait(now));
        assert!(again.into_iter().all(|wait| wait.is_zero()));
    }
}
