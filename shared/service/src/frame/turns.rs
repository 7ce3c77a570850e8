//! Who has used up more than a share of the processors waits for the next turn (G13, F40, S28).
//!
//! An allowance bounds how often a caller may ask, and not what the answers cost, nor how many of
//! its requests stand in front of somebody else's. So each caller has a line of its own: whatever a
//! request takes of a processor, the next one begins so much later that all of them together take
//! no more than the share. What was not used for a while may be used at once, so who asks for
//! something now and then never waits, nor who asks for some hundred things at a time.
//!
//! A request stands in line before it is known what it will take. Its place is as wide as others of
//! its caller were, and is set right by what it took.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::debts::Debts;
use crate::limits::Limits;

/// So much may be taken at once.
const BURST: Duration = Duration::from_millis(20);
/// What a request takes besides its handler: its connection, its head, its answer.
const BESIDES: Duration = Duration::from_micros(50);
/// What a request of somebody probably takes of whom nothing is known.
const UNKNOWN: Duration = Duration::from_micros(100);
/// The clock of the runtime has milliseconds; who is due within one is due.
const AT_ONCE: Duration = Duration::from_millis(1);

/// The lines of one server.
pub(super) struct Turns {
    /// Percent of one processor; none where nobody waits.
    share: Option<NonZeroU32>,
    debts: Mutex<Debts<Arc<str>>>,
}

/// What the requests of one caller took of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usual(Duration);

impl Default for Usual {
    fn default() -> Self {
        Self(UNKNOWN)
    }
}

impl Usual {
    /// Who was refused had no handler.
    pub(super) const REFUSED: Self = Self(BESIDES);

    pub(super) fn learn(&mut self, spent: Duration) {
        self.0 = (self.0 * 7 + spent + BESIDES) / 8;
    }
}

impl Turns {
    pub(super) fn new(limits: &Limits) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::on(processors, limits.processor_percent_each)
    }

    fn on(processors: usize, percent: u32) -> Self {
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        Self {
            share: NonZeroU32::new(percent.saturating_mul(processors)),
            debts: Mutex::new(Debts::new("everybody else".into())),
        }
    }

    /// How long the next one waits, whose place in the line is as wide as is usual.
    pub(super) fn stand(&self, who: &Arc<str>, usual: Usual, now: Instant) -> Duration {
        let Some(share) = self.share else {
            return Duration::ZERO;
        };
        let mut debts = self.debts.lock();
        let before = debts.of(who, now);
        debts.add(who, paid(usual.0, share), now);
        drop(debts);
        let wait = before.saturating_sub(paid(BURST, share));
        if wait < AT_ONCE { Duration::ZERO } else { wait }
    }

    /// It took so much, and stood as wide as was usual before.
    pub(super) fn took(&self, who: &Arc<str>, usual: Usual, spent: Duration, now: Instant) {
        let Some(share) = self.share else {
            return;
        };
        let (expected, took) = (paid(usual.0, share), paid(spent + BESIDES, share));
        let mut debts = self.debts.lock();
        match took.checked_sub(expected) {
            Some(more) => debts.add(who, more, now),
            None => debts.give_back(who, expected.saturating_sub(took)),
        }
    }
}

/// In which time a share of this size is so much.
fn paid(spent: Duration, share: NonZeroU32) -> Duration {
    spent.saturating_mul(100) / share.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A quarter of one processor.
    fn turns() -> Turns {
        Turns::on(2, 12)
    }

    /// Asks on so many connections as soon as it was answered, for a second of which the first half
    /// uses up what may be taken at once: what of a processor the second half took, and how many
    /// began in the same millisecond at most.
    fn greedy(turns: &Turns, connections: usize, cost: Duration) -> (Duration, usize) {
        let (who, began) = (Arc::from("ann"), Instant::now());
        let mut ready = vec![began; connections];
        let (mut usual, mut begun) = (Usual::default(), Vec::new());
        loop {
            ready.sort_unstable();
            let now = ready[0];
            if now >= began + MS * 1_000 {
                break;
            }
            let stands = usual;
            let begins = now + turns.stand(&who, stands, now);
            ready[0] = begins + cost;
            turns.took(&who, stands, cost, ready[0]);
            usual.learn(cost);
            begun.push(begins - began);
        }
        let late = begun
            .iter()
            .filter(|at| (500..1_000).contains(&at.as_millis()));
        let late: Vec<_> = late.map(Duration::as_millis).collect();
        let crowd = |ms: &u128| late.iter().filter(|other| *other == ms).count();
        let taken = cost * u32::try_from(late.len()).unwrap();
        (taken, late.iter().map(crowd).max().unwrap_or(0))
    }

    #[test]
    fn g13_f40_a_flood_has_its_share_evenly_whatever_its_requests_cost() {
        for (connections, micros, most) in [(16, 100, 4), (64, 100, 4), (16, 5_000, 2)] {
            let cost = Duration::from_micros(micros);
            let (taken, crowd) = greedy(&turns(), connections, cost);
            let what = format!("{connections} of {cost:?}: {taken:?}, {crowd} at once");
            assert!(taken <= MS * 130 && taken >= MS * 60, "{what}");
            assert!(crowd <= most, "{what}");
        }
    }

    #[test]
    fn g13_who_asks_now_and_then_or_for_some_things_at_once_never_waits() {
        let (turns, ben) = (turns(), Arc::from("ben"));
        let mut now = Instant::now();
        let asks = |now| {
            let wait = turns.stand(&ben, Usual::default(), now);
            turns.took(&ben, Usual::default(), MS, now);
            wait
        };
        for _ in 0..100 {
            assert_eq!(asks(now), Duration::ZERO);
            now += MS * 5;
        }
        now += MS * 1_000;
        let burst = (0..19).map(|_| asks(now));
        assert!(burst.into_iter().all(|wait| wait.is_zero()));
        assert!((0..9).any(|_| !asks(now).is_zero()));
    }

    #[test]
    fn g13_a_flood_of_one_caller_is_nothing_to_another() {
        let turns = turns();
        greedy(&turns, 16, MS);
        let ben = Arc::from("ben");
        assert!(
            turns
                .stand(&ben, Usual::default(), Instant::now())
                .is_zero()
        );
    }

    #[test]
    fn nought_is_no_limit() {
        let turns = Turns::on(2, 0);
        let (who, now) = (Arc::from("ann"), Instant::now());
        for _ in 0..10_000 {
            assert!(turns.stand(&who, Usual::default(), now).is_zero());
            turns.took(&who, Usual::default(), MS, now);
        }
    }
}
