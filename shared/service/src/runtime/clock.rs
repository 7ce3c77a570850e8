//! The only source of time, randomness and ids, so that decisions can be replayed and tests can set
//! the clock.

pub mod offset;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hayward_vocabulary::Timestamp;
use rand::Rng as _;
use uuid::{ContextV7, Uuid};

/// The wall clock. Leases use the clock of the database instead.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// The system clock, unless a test has stepped it for this process: see [`offset`].
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the only place that reads the system clock"
    )]
    fn now(&self) -> Timestamp {
        let system_ms = chrono::Utc::now().timestamp_millis();
        Timestamp::from_unix_ms(system_ms.saturating_add(offset::offset_ms().unwrap_or(0)))
    }
}

/// A clock that moves only when it is set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub fn new(instant: Timestamp) -> Self {
        Self(AtomicI64::new(instant.unix_ms()))
    }
    pub fn set(&self, instant: Timestamp) {
        self.0.store(instant.unix_ms(), Ordering::SeqCst);
    }
    pub fn advance_ms(&self, ms: u64) {
        self.set(self.now().plus_ms(ms));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }
}

/// Creates an id. Later ids sort after earlier ones (A2).
#[expect(
    clippy::disallowed_methods,
    reason = "this is the only place that creates ids"
)]
pub fn fresh_uuid() -> Uuid {
    match offset::offset_ms() {
        None => Uuid::now_v7(),
        Some(_) => stepped_uuid(&STEPPED_UUIDS, SystemClock.now()),
    }
}

/// Context of ids for a stepped clock. The ids stay sorted when the clock goes back, like those of
/// `Uuid::now_v7`.
static STEPPED_UUIDS: Mutex<ContextV7> = Mutex::new(ContextV7::new());

fn stepped_uuid(context: &Mutex<ContextV7>, now: Timestamp) -> Uuid {
    let since_epoch = Duration::from_millis(u64::try_from(now.unix_ms()).unwrap_or(0));
    let (seconds, nanos) = (since_epoch.as_secs(), since_epoch.subsec_nanos());
    Uuid::new_v7(uuid::Timestamp::from_unix(context, seconds, nanos))
}

/// Creates a secret: 256 random bits as text, with a prefix for secret scanners (S8).
pub fn random_secret() -> String {
    let mut secret = String::with_capacity(68);
    secret.push_str("hwd_");
    for byte in random_bytes() {
        secret.push(char::from(HEX_DIGITS[usize::from(byte >> 4)]));
        secret.push(char::from(HEX_DIGITS[usize::from(byte & 15)]));
    }
    secret
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(crate) fn random_bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_recognisable_and_different() {
        let (one, two) = (random_secret(), random_secret());
        assert!(one.starts_with("hwd_") && one.len() == 68);
        assert_ne!(one, two);
    }

    #[test]
    fn ids_made_later_sort_later() {
        let (one, two) = (fresh_uuid(), fresh_uuid());
        assert!(one < two);
    }

    #[test]
    fn ids_sort_later_even_after_the_clock_went_back() {
        let context = Mutex::new(ContextV7::new());
        let (now, hour) = (SystemClock.now(), 3_600_000);
        let ids = [now, now.plus_ms(hour), now, now.minus_ms(hour)];
        let ids = ids.map(|now| stepped_uuid(&context, now));
        assert!(ids.is_sorted_by(|one, two| one < two), "{ids:?}");
    }

    #[test]
    fn a_manual_clock_does_not_move_by_itself() {
        let clock = ManualClock::new(Timestamp::from_unix_ms(5));
        assert_eq!(clock.now(), clock.now());
        clock.advance_ms(7);
        assert_eq!(clock.now().unix_ms(), 12);
    }
}
