//! What each address or caller has used up of something that grows back with time: the instant
//! from which it has everything again. Nothing is kept of who has.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Remembered one by one; all others share one account (I25).
const MOST: usize = 64 * 1024;
/// A full table is looked through at most so often, for it is large.
const SWEPT_EACH: Duration = Duration::from_secs(1);

pub(crate) struct Debts<K> {
    until: HashMap<K, Instant>,
    /// Whose account all those share who find no room for one of their own.
    crowd: K,
    room: usize,
    /// When the full table was last looked through.
    swept: Option<Instant>,
}

impl<K: Eq + Hash + Clone> Debts<K> {
    pub(crate) fn new(crowd: K) -> Self {
        Self::of_most(MOST, crowd)
    }

    fn of_most(room: usize, crowd: K) -> Self {
        Self {
            until: HashMap::new(),
            crowd,
            room,
            swept: None,
        }
    }

    fn account<'a>(&'a self, who: &'a K) -> &'a K {
        let known = self.until.len() < self.room || self.until.contains_key(who);
        if known { who } else { &self.crowd }
    }

    pub(crate) fn of(&self, who: &K, now: Instant) -> Duration {
        let until = self.until.get(self.account(who));
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    pub(crate) fn add(&mut self, who: &K, much: Duration, now: Instant) {
        if self.until.len() >= self.room {
            self.sweep(now);
        }
        let account = self.account(who).clone();
        let until = self.until.entry(account).or_insert(now);
        *until = (*until).max(now) + much;
    }

    /// It was less than was added.
    pub(crate) fn give_back(&mut self, who: &K, much: Duration) {
        let account = self.account(who).clone();
        if let Some(until) = self.until.get_mut(&account)
            && let Some(sooner) = until.checked_sub(much)
        {
            *until = sooner;
        }
    }

    fn sweep(&mut self, now: Instant) {
        let swept = self.swept.map(|swept| now.saturating_duration_since(swept));
        if swept.is_none_or(|since| since >= SWEPT_EACH) {
            self.swept = Some(now);
            self.until.retain(|_, until| *until > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_used_up_grows_back() {
        let (mut debts, now) = (Debts::new(0), Instant::now());
        debts.add(&1, SECOND, now);
        debts.add(&1, SECOND, now);
        assert_eq!(debts.of(&1, now + SECOND), SECOND);
        assert_eq!(debts.of(&1, now + SECOND * 3), Duration::ZERO);
        assert_eq!(debts.of(&2, now), Duration::ZERO);
        debts.give_back(&1, SECOND);
        assert_eq!(debts.of(&1, now), SECOND);
    }

    #[test]
    fn i25_the_table_is_bounded_and_forgets_who_owes_nothing() {
        let (mut debts, now) = (Debts::of_most(2, 255), Instant::now());
        for number in 0..9_u8 {
            debts.add(&number, SECOND, now);
        }
        assert_eq!(debts.until.len(), 3, "two, and one account for all others");
        assert_eq!(debts.of(&0, now), SECOND);
        assert_eq!(debts.of(&200, now), SECOND * 7);
        let later = now + SECOND * 7;
        debts.add(&5, SECOND, later);
        assert_eq!(debts.until.len(), 1);
    }
}
