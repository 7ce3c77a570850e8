//! Counts the losses of contact of one node. A node that repeatedly loses contact and returns is
//! flapping. The count changes only with a loss, because each new text with the count is published
//! (F33).

use std::collections::VecDeque;

/// Window of the count, in milliseconds.
pub const WINDOW_MS: u64 = 15 * 60 * 1000;
/// Minimum count that is reported.
pub const MIN_REPORTED: u64 = 3;
/// Maximum count.
const MAX_COUNT: usize = 99;

/// Times of recent losses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlapCounter(VecDeque<u64>);

impl FlapCounter {
    /// Records a loss of contact.
    pub fn record_loss(&mut self, now_ms: u64) {
        while let Some(first) = self.0.front()
            && (now_ms.saturating_sub(*first) >= WINDOW_MS || self.0.len() >= MAX_COUNT)
        {
            self.0.pop_front();
        }
        self.0.push_back(now_ms);
    }

    /// Returns the number of losses in the window that ends with the last loss. Zero if the last
    /// loss is older than the window.
    pub fn count(&self, now_ms: u64) -> u64 {
        match self.expires_at_ms() {
            Some(until) if now_ms < until => self.0.len() as u64,
            _ => 0,
        }
    }

    /// Returns the count if it is high enough to report, and zero otherwise.
    pub fn reported_count(&self, now_ms: u64) -> u64 {
        Some(self.count(now_ms))
            .filter(|count| *count >= MIN_REPORTED)
            .unwrap_or(0)
    }

    /// Returns the time at which the count becomes zero without another loss.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.0.back().map(|last| last.saturating_add(WINDOW_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_within_a_window() {
        let mut flaps = FlapCounter::default();
        assert_eq!((flaps.count(0), flaps.expires_at_ms()), (0, None));
        // One loss every thirty seconds (F33).
        for round in 1..=5 {
            flaps.record_loss(round * 30_000);
        }
        assert_eq!(flaps.count(150_000), 5);
        assert_eq!(flaps.reported_count(150_000), 5);
        // The count stays until the next loss or until the window has passed.
        assert_eq!(flaps.count(150_000 + WINDOW_MS - 1), 5);
        assert_eq!(flaps.count(150_000 + WINDOW_MS), 0);
        flaps.record_loss(60_000 + WINDOW_MS);
        assert_eq!(
            flaps.count(60_000 + WINDOW_MS),
            4,
            "two losses are older than the window"
        );
        for round in 0..500 {
            flaps.record_loss(60_000 + WINDOW_MS + round);
        }
        assert_eq!(flaps.count(60_500 + WINDOW_MS), MAX_COUNT as u64);
    }

    #[test]
    fn one_or_two_losses_are_not_reported() {
        let mut flaps = FlapCounter::default();
        flaps.record_loss(1);
        flaps.record_loss(2);
        assert_eq!((flaps.count(3), flaps.reported_count(3)), (2, 0));
    }
}
