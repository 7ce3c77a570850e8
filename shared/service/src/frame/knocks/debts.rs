//! What each address has used up of something that grows back with time: the instant from which it
//! has everything again. Nothing is kept of who has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Addresses remembered one by one; all others share one account (I25).
const MOST: usize = 64 * 1024;
/// A full table is looked through at most so often, for it is large.
const SWEPT_EACH: Duration = Duration::from_secs(1);
const CROWD: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(super) struct Debts {
    until: HashMap<IpAddr, Instant>,
    room: usize,
    /// When the full table was last looked through.
    swept: Option<Instant>,
}

impl Default for Debts {
    fn default() -> Self {
        Self::of_most(MOST)
    }
}

impl Debts {
    fn of_most(room: usize) -> Self {
        Self {
            until: HashMap::new(),
            room,
            swept: None,
        }
    }

    fn account(&self, address: IpAddr) -> IpAddr {
        let known = self.until.len() < self.room || self.until.contains_key(&address);
        if known { address } else { CROWD }
    }

    pub(super) fn of(&self, address: IpAddr, now: Instant) -> Duration {
        let until = self.until.get(&self.account(address));
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    pub(super) fn add(&mut self, address: IpAddr, much: Duration, now: Instant) {
        if self.until.len() >= self.room {
            self.sweep(now);
        }
        let account = self.account(address);
        let until = self.until.entry(account).or_insert(now);
        *until = (*until).max(now) + much;
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

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn what_was_used_up_grows_back() {
        let (mut debts, now) = (Debts::default(), Instant::now());
        debts.add(address(1), SECOND, now);
        debts.add(address(1), SECOND, now);
        assert_eq!(debts.of(address(1), now + SECOND), SECOND);
        assert_eq!(debts.of(address(1), now + SECOND * 3), Duration::ZERO);
        assert_eq!(debts.of(address(2), now), Duration::ZERO);
    }

    #[test]
    fn i25_the_table_is_bounded_and_forgets_who_owes_nothing() {
        let (mut debts, now) = (Debts::of_most(2), Instant::now());
        for number in 0..9 {
            debts.add(address(number), SECOND, now);
        }
        assert_eq!(debts.until.len(), 3, "two, and one account for all others");
        assert_eq!(debts.of(address(0), now), SECOND);
        assert_eq!(debts.of(address(200), now), SECOND * 7);
        let later = now + SECOND * 7;
        debts.add(address(5), SECOND, later);
        assert_eq!(debts.until.len(), 1);
    }
}
