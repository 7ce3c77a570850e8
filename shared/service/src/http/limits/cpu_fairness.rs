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
use super::token_bucket::TokenBuckets;

const OVERFLOW_KEY: &str = "everybody else";
/// So much may be taken at once.
const BURST: Duration = Duration::from_millis(20);
/// What a request takes besides its handler: its head and its answer.
const REQUEST_OVERHEAD: Duration = Duration::from_micros(50);
/// What a connection takes to be let in, and to end. Who comes anew with each request mostly
/// takes this.
const CONNECTION_OVERHEAD: Duration = Duration::from_micros(150);
/// What a request of somebody probably takes of whom nothing is known.
const INITIAL_ESTIMATE: Duration = Duration::from_micros(100);
/// The clock of the runtime has milliseconds; who is due within one is due.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Who has asked for nothing so long is not there.
const CONTENTION_WINDOW: Duration = Duration::from_secs(5);

/// The lines of one server.
pub(crate) struct CpuFairness {
    /// Percent of one processor; none where nobody waits.
    share: Option<NonZeroU32>,
    state: Mutex<State>,
}

struct State {
    buckets: TokenBuckets<Arc<str>>,
    /// Who asked last, and the last one before who is somebody else; with when.
    recent: [Option<(Arc<str>, Instant)>; 2],
}

impl State {
    /// Somebody asks; is anybody else there?
    fn others_active(&mut self, who: &Arc<str>, now: Instant) -> bool {
        let [last, other] = &mut self.recent;
        if last.as_ref().is_none_or(|(last, _)| last != who) {
            *other = last.take();
        }
        *last = Some((Arc::clone(who), now));
        let since = other
            .as_ref()
            .map(|(_, at)| now.saturating_duration_since(*at));
        since.is_some_and(|since| since < CONTENTION_WINDOW)
    }
}

/// What was spent on letting a connection in. Its first request owes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionCost(Duration);

impl ConnectionCost {
    /// With what the handshake took.
    pub(crate) fn new(handshake: Duration) -> Self {
        Self(CONNECTION_OVERHEAD + handshake)
    }
}

/// What a request takes outside its handler.
pub(crate) fn overhead(connection_cost: Option<&ConnectionCost>) -> Duration {
    connection_cost.map_or(REQUEST_OVERHEAD, |ConnectionCost(cost)| {
        REQUEST_OVERHEAD + *cost
    })
}

/// What a place in a line is made for; none where there is no line.
pub(crate) type Reservation = Option<CpuEstimate>;

/// What the requests of one caller took of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuEstimate(Duration);

impl Default for CpuEstimate {
    fn default() -> Self {
        Self(INITIAL_ESTIMATE)
    }
}

impl CpuEstimate {
    /// Who was refused had no handler, so it is this alone.
    pub(crate) fn refused(overhead: Duration) -> Self {
        Self(overhead)
    }

    pub(crate) fn observe(&mut self, spent: Duration) {
        self.0 = (self.0 * 7 + spent) / 8;
    }
}

impl CpuFairness {
    pub(crate) fn new(limits: &Limits) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with_processors(processors, limits.processor_percent_each)
    }

    fn with_processors(processors: usize, percent: u32) -> Self {
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        Self {
            share: NonZeroU32::new(percent.saturating_mul(processors)),
            state: Mutex::new(State {
                buckets: TokenBuckets::new(OVERFLOW_KEY.into()),
                recent: [None, None],
            }),
        }
    }

    /// How long the next one waits, whose place in the line is as wide as is usual.
    pub(crate) fn enqueue(
        &self,
        who: &Arc<str>,
        estimate: CpuEstimate,
        now: Instant,
    ) -> (Duration, Reservation) {
        let Some(share) = self.share else {
            return (Duration::ZERO, None);
        };
        let mut state = self.state.lock();
        if !state.others_active(who, now) {
            return (Duration::ZERO, None);
        }
        let before = state.buckets.debt(who, now);
        state
            .buckets
            .spend(who, time_at_share(estimate.0, share), now);
        drop(state);
        let wait = before.saturating_sub(time_at_share(BURST, share));
        let wait = if wait < TIMER_RESOLUTION {
            Duration::ZERO
        } else {
            wait
        };
        (wait, Some(estimate))
    }

    /// It took so much, with what it took outside its handler.
    pub(crate) fn settle(
        &self,
        who: &Arc<str>,
        reservation: Reservation,
        spent: Duration,
        now: Instant,
    ) {
        let (Some(share), Some(estimate)) = (self.share, reservation) else {
            return;
        };
        let (expected, took) = (
            time_at_share(estimate.0, share),
            time_at_share(spent, share),
        );
        let buckets = &mut self.state.lock().buckets;
        buckets.spend(who, took.saturating_sub(expected), now);
        buckets.refund(who, expected.saturating_sub(took));
    }
}

/// In which time a share of this size is so much.
fn time_at_share(spent: Duration, share: NonZeroU32) -> Duration {
    spent.saturating_mul(100) / share.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A quarter of one processor, for more than one.
    fn fairness() -> CpuFairness {
        let fairness = CpuFairness::with_processors(2, 12);
        fairness.enqueue(&Arc::from("cy"), CpuEstimate::default(), Instant::now());
        fairness
    }

    /// Asks on so many connections as soon as it was answered, for a second of which the first half
    /// uses up what may be taken at once: what of a processor the second half took, and how many
    /// began in the same millisecond at most.
    fn greedy(fairness: &CpuFairness, connections: usize, cost: Duration) -> (Duration, usize) {
        let (who, began) = (Arc::from("ann"), Instant::now());
        let mut ready = vec![began; connections];
        let (mut estimate, mut begun) = (CpuEstimate::default(), Vec::new());
        loop {
            ready.sort_unstable();
            let now = ready[0];
            if now >= began + MS * 1_000 {
                break;
            }
            let (wait, reservation) = fairness.enqueue(&who, estimate, now);
            let begins = now + wait;
            ready[0] = begins + cost;
            fairness.settle(&who, reservation, cost, ready[0]);
            estimate.observe(cost);
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
            let (taken, crowd) = greedy(&fairness(), connections, cost);
            let what = format!("{connections} of {cost:?}: {taken:?}, {crowd} at once");
            assert!(taken <= MS * 130 && taken >= MS * 60, "{what}");
            assert!(crowd <= most, "{what}");
        }
    }

    /// Refusals are cheap, connections are not: who is refused on a new one each time is held to
    /// the same share.
    #[test]
    fn g13_f40_who_comes_anew_with_each_request_pays_for_coming() {
        let refused = |overhead| {
            let (fairness, who, mut now) = (fairness(), Arc::from("ann"), Instant::now());
            let (began, mut count) = (now, 0);
            while now < began + MS * 1_000 {
                let (wait, _) = fairness.enqueue(&who, CpuEstimate::refused(overhead), now);
                now += wait;
                count += 1;
            }
            count
        };
        let (stays, comes) = (
            refused(overhead(None)),
            refused(overhead(Some(&ConnectionCost::new(MS)))),
        );
        assert!((4_500..6_000).contains(&stays), "{stays}");
        assert!((200..300).contains(&comes), "{comes}");
    }

    #[test]
    fn g13_who_asks_now_and_then_or_for_some_things_at_once_never_waits() {
        let (fairness, ben) = (fairness(), Arc::from("ben"));
        let mut now = Instant::now();
        let ask = |now| {
            let (wait, reservation) = fairness.enqueue(&ben, CpuEstimate::default(), now);
            fairness.settle(&ben, reservation, MS, now);
            wait
        };
        for _ in 0..100 {
            assert_eq!(ask(now), Duration::ZERO);
            now += MS * 5;
        }
        now += MS * 1_000;
        let burst = (0..19).map(|_| ask(now));
        assert!(burst.into_iter().all(|wait| wait.is_zero()));
        assert!((0..9).any(|_| !ask(now).is_zero()));
    }

    #[test]
    fn g13_a_flood_of_one_caller_is_nothing_to_another() {
        let fairness = fairness();
        greedy(&fairness, 16, MS);
        let (wait, _) = fairness.enqueue(&Arc::from("ben"), CpuEstimate::default(), Instant::now());
        assert!(wait.is_zero());
    }

    #[test]
    fn who_asks_alone_never_waits_and_owes_nothing_when_others_come() {
        let (fairness, ann, began) = (
            CpuFairness::with_processors(2, 12),
            Arc::from("ann"),
            Instant::now(),
        );
        let ask = |who: &Arc<str>, at: Duration| {
            let (wait, reservation) = fairness.enqueue(who, CpuEstimate::default(), began + at);
            fairness.settle(who, reservation, MS * 10, began + at);
            wait
        };
        assert!((0..1_000).all(|at| ask(&ann, MS * at).is_zero()));
        ask(&Arc::from("ben"), MS * 1_000);
        assert!(ask(&ann, MS * 1_001).is_zero(), "she took nothing of his");
        assert!((0..9).any(|at| !ask(&ann, MS * (1_002 + at)).is_zero()));
        let later = MS * 1_000 + CONTENTION_WINDOW * 2;
        assert!(
            (0..9).all(|at| ask(&ann, later + MS * at).is_zero()),
            "he is gone"
        );
    }

    #[test]
    fn nought_is_no_limit() {
        let fairness = CpuFairness::with_processors(2, 0);
        let (who, now) = (Arc::from("ann"), Instant::now());
        for _ in 0..10_000 {
            let (wait, reservation) = fairness.enqueue(&who, CpuEstimate::default(), now);
            assert!(wait.is_zero());
            fairness.settle(&who, reservation, MS, now);
        }
    }
}
