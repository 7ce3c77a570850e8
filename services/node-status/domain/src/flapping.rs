//! F33: a node that comes and goes is told from one that went once. Counted from good health to
//! silence; the number is reckoned when it changes and then stands, so that no text runs by itself.

use std::collections::VecDeque;

/// How far back it is counted.
pub const WINDOW_MS: u64 = 15 * 60 * 1000;
/// Once or twice happens to anybody.
pub const MANY: u64 = 3;
/// More than this within the window are this many.
const MOST: usize = 99;

/// When a node fell silent lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flaps(VecDeque<u64>);

impl Flaps {
    /// It fell silent.
    pub fn went(&mut self, now_ms: u64) {
        while let Some(first) = self.0.front()
            && (now_ms.saturating_sub(*first) >= WINDOW_MS || self.0.len() >= MOST)
        {
            self.0.pop_front();
        }
        self.0.push_back(now_ms);
    }

    /// How often, as of the last time; zero when that is long ago.
    pub fn count(&self, now_ms: u64) -> u64 {
        match self.until_ms() {
            Some(until) if now_ms < until => self.0.len() as u64,
            _ => 0,
        }
    }

    /// The count where it is worth a word.
    pub fn many(&self, now_ms: u64) -> u64 {
        Some(self.count(now_ms))
            .filter(|count| *count >= MANY)
            .unwrap_or(0)
    }

    /// When all is forgotten if it stays.
    pub fn until_ms(&self) -> Option<u64> {
        self.0.back().map(|last| last.saturating_add(WINDOW_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comings_and_goings_are_counted_within_a_window() {
        let mut flaps = Flaps::default();
        assert_eq!((flaps.count(0), flaps.until_ms()), (0, None));
        // F33: every thirty seconds.
        for round in 1..=5 {
            flaps.went(round * 30_000);
        }
        assert_eq!(flaps.count(150_000), 5);
        assert_eq!(flaps.many(150_000), 5);
        // The number stands until the next time, or until nothing happened for the whole window.
        assert_eq!(flaps.count(150_000 + WINDOW_MS - 1), 5);
        assert_eq!(flaps.count(150_000 + WINDOW_MS), 0);
        flaps.went(60_000 + WINDOW_MS);
        assert_eq!(
            flaps.count(60_000 + WINDOW_MS),
            4,
            "two have left the window"
        );
        for round in 0..500 {
            flaps.went(60_000 + WINDOW_MS + round);
        }
        assert_eq!(flaps.count(60_500 + WINDOW_MS), MOST as u64);
    }

    #[test]
    fn once_or_twice_is_not_worth_a_word() {
        let mut flaps = Flaps::default();
        flaps.went(1);
        flaps.went(2);
        assert_eq!((flaps.count(3), flaps.many(3)), (2, 0));
    }
}
