//! Who has used up more than a share of the processors waits for the next turn (G13, F40, S28).
//!
//! An allowance bounds how often a caller may ask, and not what the answers cost, nor how many of
//! its requests stand in front of somebody else's. So each caller has a line of its own: whatever a
//! request takes of a processor, the next one begins so much later that all of them together take
//! no more than the share. What was not used for a while may be used at once, so who asks for
//! something now and then never waits, nor who asks for some hundred things at a time.
//!
//! Who asks alone stands in nobody's way, and never waits.
//!
//! A request stands in line before it is known what it will take. Its place is as wide as others of
//! its caller were, and is set right by what it took.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Limits;
use super::token_bucket::Debts;

/// So much may be taken at once.
const BURST: Duration = Duration::from_millis(20);
/// What a request takes besides its handler: its head and its answer.
const BESIDES: Duration = Duration::from_micros(50);
/// What a connection takes to be let in, and to end. Who comes anew with each request mostly
/// takes this.
const LET_IN: Duration = Duration::from_micros(150);
/// What a request of somebody probably takes of whom nothing is known.
const UNKNOWN: Duration = Duration::from_micros(100);
/// The clock of the runtime has milliseconds; who is due within one is due.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Who has asked for nothing so long is not there.
const COMPANY: Duration = Duration::from_secs(5);

/// The lines of one server.
pub(crate) struct Turns {
    /// Percent of one processor; none where nobody waits.
    share: Option<NonZeroU32>,
    lines: Mutex<Lines>,
}

struct Lines {
    debts: Debts<Arc<str>>,
    /// Who asked last, and the last one before who is somebody else; with when.
    asked: [Option<(Arc<str>, Instant)>; 2],
}

impl Lines {
    /// Somebody asks; is anybody else there?
    fn are_others(&mut self, who: &Arc<str>, now: Instant) -> bool {
        let [last, other] = &mut self.asked;
        if last.as_ref().is_none_or(|(last, _)| last != who) {
            *other = last.take();
        }
        *last = Some((Arc::clone(who), now));
        let since = other
            .as_ref()
            .map(|(_, at)| now.saturating_duration_since(*at));
        since.is_some_and(|since| since < COMPANY)
    }
}

/// What was spent on letting a connection in. Its first request owes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival(Duration);

impl Arrival {
    /// With what the handshake took.
    pub(crate) fn new(handshake: Duration) -> Self {
        Self(LET_IN + handshake)
    }
}

/// What a request takes outside its handler.
pub(crate) fn besides(arrival: Option<&Arrival>) -> Duration {
    arrival.map_or(BESIDES, |Arrival(let_in)| BESIDES + *let_in)
}

/// What a place in a line is made for; none where there is no line.
pub(crate) type Place = Option<Usual>;

/// What the requests of one caller took of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usual(Duration);

impl Default for Usual {
    fn default() -> Self {
        Self(UNKNOWN)
    }
}

impl Usual {
    /// Who was refused had no handler, so it is this alone.
    pub(crate) fn refused(besides: Duration) -> Self {
        Self(besides)
    }

    pub(crate) fn learn(&mut self, spent: Duration) {
        self.0 = (self.0 * 7 + spent) / 8;
    }
}

impl Turns {
    pub(crate) fn new(limits: &Limits) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::on(processors, limits.processor_percent_each)
    }

    fn on(processors: usize, percent: u32) -> Self {
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        Self {
            share: NonZeroU32::new(percent.saturating_mul(processors)),
            lines: Mutex::new(Lines {
                debts: Debts::new("everybody else".into()),
                asked: [None, None],
            }),
        }
    }

    /// How long the next one waits, whose place in the line is as wide as is usual.
    pub(crate) fn stand(&self, who: &Arc<str>, usual: Usual, now: Instant) -> (Duration, Place) {
        let Some(share) = self.share else {
            return (Duration::ZERO, None);
        };
        let mut lines = self.lines.lock();
        if !lines.are_others(who, now) {
            return (Duration::ZERO, None);
        }
        let before = lines.debts.of(who, now);
        lines.debts.add(who, paid(usual.0, share), now);
        drop(lines);
        let wait = before.saturating_sub(paid(BURST, share));
        let wait = if wait < AT_ONCE { Duration::ZERO } else { wait };
        (wait, Some(usual))
    }

    /// It took so much, with what it took outside its handler.
    pub(crate) fn took(&self, who: &Arc<str>, place: Place, spent: Duration, now: Instant) {
        let (Some(share), Some(usual)) = (self.share, place) else {
            return;
        };
        let (expected, took) = (paid(usual.0, share), paid(spent, share));
        let debts = &mut self.lines.lock().debts;
        debts.add(who, took.saturating_sub(expected), now);
        debts.give_back(who, expected.saturating_sub(took));
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

    /// A quarter of one processor, for more than one.
    fn turns() -> Turns {
        let turns = Turns::on(2, 12);
        turns.stand(&Arc::from("cy"), Usual::default(), Instant::now());
        turns
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
            let (wait, place) = turns.stand(&who, usual, now);
            let begins = now + wait;
            ready[0] = begins + cost;
            turns.took(&who, place, cost, ready[0]);
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

    /// Refusals are cheap, connections are not: who is refused on a new one each time is held to
    /// the same share.
    #[test]
    fn g13_f40_who_comes_anew_with_each_request_pays_for_coming() {
        let refused = |besides| {
            let (turns, who, mut now) = (turns(), Arc::from("ann"), Instant::now());
            let (began, mut count) = (now, 0);
            while now < began + MS * 1_000 {
                let (wait, _) = turns.stand(&who, Usual::refused(besides), now);
                now += wait;
                count += 1;
            }
            count
        };
        let (stays, comes) = (
            refused(besides(None)),
            refused(besides(Some(&Arrival::new(MS)))),
        );
        assert!((4_500..6_000).contains(&stays), "{stays}");
        assert!((200..300).contains(&comes), "{comes}");
    }

    #[test]
    fn g13_who_asks_now_and_then_or_for_some_things_at_once_never_waits() {
        let (turns, ben) = (turns(), Arc::from("ben"));
        let mut now = Instant::now();
        let asks = |now| {
            let (wait, place) = turns.stand(&ben, Usual::default(), now);
            turns.took(&ben, place, MS, now);
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
        let (wait, _) = turns.stand(&Arc::from("ben"), Usual::default(), Instant::now());
        assert!(wait.is_zero());
    }

    #[test]
    fn who_asks_alone_never_waits_and_owes_nothing_when_others_come() {
        let (turns, ann, began) = (Turns::on(2, 12), Arc::from("ann"), Instant::now());
        let asks = |who: &Arc<str>, at: Duration| {
            let (wait, place) = turns.stand(who, Usual::default(), began + at);
            turns.took(who, place, MS * 10, began + at);
            wait
        };
        assert!((0..1_000).all(|at| asks(&ann, MS * at).is_zero()));
        asks(&Arc::from("ben"), MS * 1_000);
        assert!(asks(&ann, MS * 1_001).is_zero(), "she took nothing of his");
        assert!((0..9).any(|at| !asks(&ann, MS * (1_002 + at)).is_zero()));
        let later = MS * 1_000 + COMPANY * 2;
        assert!(
            (0..9).all(|at| asks(&ann, later + MS * at).is_zero()),
            "he is gone"
        );
    }

    #[test]
    fn nought_is_no_limit() {
        let turns = Turns::on(2, 0);
        let (who, now) = (Arc::from("ann"), Instant::now());
        for _ in 0..10_000 {
            let (wait, place) = turns.stand(&who, Usual::default(), now);
            assert!(wait.is_zero());
            turns.took(&who, place, MS, now);
        }
    }
}
