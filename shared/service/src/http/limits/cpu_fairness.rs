//! CPU fairness between callers: a token bucket of CPU time per caller (G13).
//!
//! Rate limits bound the number of requests and not their cost. Here each request takes its CPU
//! time out of the bucket of its caller, and a request waits while the bucket is empty. A caller
//! therefore gets no more than its share of the CPUs. Occasional requests and short bursts never
//! wait.
//!
//! A caller never waits while it is the only one.
//!
//! A request reserves an estimate, which is based on earlier requests of its caller. The
//! reservation is corrected when the actual CPU time is known.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Limits;
use super::token_bucket::TokenBuckets;

/// Key of the bucket that further callers share once the table is full.
const OVERFLOW_KEY: &str = "everybody else";
/// CPU time that a caller may use at once.
const BURST: Duration = Duration::from_millis(20);
/// CPU time of a request outside its handler: reading the head and writing the response.
const REQUEST_OVERHEAD: Duration = Duration::from_micros(50);
/// CPU time of accepting and closing a connection.
const CONNECTION_OVERHEAD: Duration = Duration::from_micros(150);
/// CPU estimate for a caller without history.
const INITIAL_ESTIMATE: Duration = Duration::from_micros(100);
/// Resolution of the timer of the runtime. A shorter wait is skipped.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Time after its last request for which a caller counts as active.
const CONTENTION_WINDOW: Duration = Duration::from_secs(5);

/// CPU fairness of one server.
pub(crate) struct CpuFairness {
    /// Share of a caller in percent of one CPU. `None` means no limit.
    share: Option<NonZeroU32>,
    state: Mutex<State>,
}

struct State {
    buckets: TokenBuckets<Arc<str>>,
    /// The last caller, and the last caller other than that one. Each has the time of its last
    /// request.
    recent: [Option<(Arc<str>, Instant)>; 2],
}

impl State {
    /// Records a request. Returns whether another caller is active.
    fn record_request(&mut self, caller: &Arc<str>, now: Instant) -> bool {
        let [last, other] = &mut self.recent;
        if last.as_ref().is_none_or(|(last, _)| last != caller) {
            *other = last.take();
        }
        *last = Some((Arc::clone(caller), now));
        let age = other
            .as_ref()
            .map(|(_, at)| now.saturating_duration_since(*at));
        age.is_some_and(|age| age < CONTENTION_WINDOW)
    }
}

/// CPU time of a new connection. It is charged to its first request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionCost(Duration);

impl ConnectionCost {
    /// Creates the cost. It includes the CPU time of the handshake.
    pub(crate) fn new(handshake: Duration) -> Self {
        Self(CONNECTION_OVERHEAD + handshake)
    }
}

/// Returns the CPU time of a request outside its handler.
pub(crate) fn request_overhead(connection_cost: Option<&ConnectionCost>) -> Duration {
    connection_cost.map_or(REQUEST_OVERHEAD, |ConnectionCost(cost)| {
        REQUEST_OVERHEAD + *cost
    })
}

/// CPU time that a request has reserved. `None` if the request is not limited.
pub(crate) type Reservation = Option<CpuEstimate>;

/// Moving average of the CPU time of the requests of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuEstimate(Duration);

impl Default for CpuEstimate {
    fn default() -> Self {
        Self(INITIAL_ESTIMATE)
    }
}

impl CpuEstimate {
    /// Creates the estimate for a refused request, which has no handler.
    pub(crate) fn for_refusal(overhead: Duration) -> Self {
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

    /// Reserves the estimate. Returns how long the request must wait, and the reservation.
    pub(crate) fn enqueue(
        &self,
        caller: &Arc<str>,
        estimate: CpuEstimate,
        now: Instant,
    ) -> (Duration, Reservation) {
        let Some(share) = self.share else {
            return (Duration::ZERO, None);
        };
        let mut state = self.state.lock();
        if !state.record_request(caller, now) {
            return (Duration::ZERO, None);
        }
        let until_full = state.buckets.time_until_full(caller, now);
        state
            .buckets
            .spend(caller, time_at_share(estimate.0, share), now);
        drop(state);
        let wait = until_full.saturating_sub(time_at_share(BURST, share));
        let wait = if wait < TIMER_RESOLUTION {
            Duration::ZERO
        } else {
            wait
        };
        (wait, Some(estimate))
    }

    /// Replaces the reservation with the actual CPU time, including the overhead.
    pub(crate) fn settle(
        &self,
        caller: &Arc<str>,
        reservation: Reservation,
        spent: Duration,
        now: Instant,
    ) {
        let (Some(share), Some(estimate)) = (self.share, reservation) else {
            return;
        };
        let (reserved, actual) = (
            time_at_share(estimate.0, share),
            time_at_share(spent, share),
        );
        let buckets = &mut self.state.lock().buckets;
        buckets.spend(caller, actual.saturating_sub(reserved), now);
        buckets.refund(caller, reserved.saturating_sub(actual));
    }
}

/// Returns the time in which a share yields this much CPU time.
fn time_at_share(spent: Duration, share: NonZeroU32) -> Duration {
    spent.saturating_mul(100) / share.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Creates fairness with a quarter of one CPU, and with another active caller.
    fn fairness() -> CpuFairness {
        let fairness = CpuFairness::with_processors(2, 12);
        fairness.enqueue(&Arc::from("cy"), CpuEstimate::default(), Instant::now());
        fairness
    }

    /// Sends requests on all connections without a pause for a second. Returns the CPU time of the
    /// second half, and the most requests that began in one millisecond of it.
    fn flood(fairness: &CpuFairness, connections: usize, cost: Duration) -> (Duration, usize) {
        let (caller, began) = (Arc::from("ann"), Instant::now());
        let mut ready = vec![began; connections];
        let (mut estimate, mut starts) = (CpuEstimate::default(), Vec::new());
        loop {
            ready.sort_unstable();
            let now = ready[0];
            if now >= began + MS * 1_000 {
                break;
            }
            let (wait, reservation) = fairness.enqueue(&caller, estimate, now);
            let start = now + wait;
            ready[0] = start + cost;
            fairness.settle(&caller, reservation, cost, ready[0]);
            estimate.observe(cost);
            starts.push(start - began);
        }
        let second_half = starts
            .iter()
            .filter(|at| (500..1_000).contains(&at.as_millis()));
        let second_half: Vec<_> = second_half.map(Duration::as_millis).collect();
        let simultaneous = |ms: &u128| second_half.iter().filter(|other| *other == ms).count();
        let used = cost * u32::try_from(second_half.len()).unwrap();
        (
            used,
            second_half.iter().map(simultaneous).max().unwrap_or(0),
        )
    }

    #[test]
    fn a_flood_gets_its_share_evenly_at_any_cost_per_request() {
        for (connections, micros, max_simultaneous) in [(16, 100, 4), (64, 100, 4), (16, 5_000, 2)]
        {
            let cost = Duration::from_micros(micros);
            let (used, simultaneous) = flood(&fairness(), connections, cost);
            // The share of half a second is 120 ms of CPU time.
            let case = format!("{connections} of {cost:?}: {used:?}, {simultaneous} at once");
            assert!(used <= MS * 130 && used >= MS * 60, "{case}");
            assert!(simultaneous <= max_simultaneous, "{case}");
        }
    }

    /// A refusal costs little CPU time. A new connection costs much more.
    #[test]
    fn a_new_connection_per_request_lowers_the_rate_of_refusals() {
        let refusals_per_second = |overhead| {
            let (fairness, caller, mut now) = (fairness(), Arc::from("ann"), Instant::now());
            let (began, mut count) = (now, 0);
            while now < began + MS * 1_000 {
                let (wait, _) = fairness.enqueue(&caller, CpuEstimate::for_refusal(overhead), now);
                now += wait;
                count += 1;
            }
            count
        };
        let (reused_connection, new_connection) = (
            refusals_per_second(request_overhead(None)),
            refusals_per_second(request_overhead(Some(&ConnectionCost::new(MS)))),
        );
        // The share is 240 ms of CPU time per second. A refusal takes 50 µs of it, and 1.2 ms on a
        // new connection. The burst adds some more.
        assert!(
            (4_500..6_000).contains(&reused_connection),
            "{reused_connection}"
        );
        assert!((200..300).contains(&new_connection), "{new_connection}");
    }

    #[test]
    fn occasional_requests_and_short_bursts_never_wait() {
        let (fairness, ben) = (fairness(), Arc::from("ben"));
        let mut now = Instant::now();
        let send_request = |now| {
            let (wait, reservation) = fairness.enqueue(&ben, CpuEstimate::default(), now);
            fairness.settle(&ben, reservation, MS, now);
            wait
        };
        for _ in 0..100 {
            assert_eq!(send_request(now), Duration::ZERO);
            now += MS * 5;
        }
        now += MS * 1_000;
        let burst = (0..19).map(|_| send_request(now));
        assert!(burst.into_iter().all(|wait| wait.is_zero()));
        assert!((0..9).any(|_| !send_request(now).is_zero()));
    }

    #[test]
    fn a_flood_of_one_caller_does_not_delay_another() {
        let fairness = fairness();
        flood(&fairness, 16, MS);
        let (wait, _) = fairness.enqueue(&Arc::from("ben"), CpuEstimate::default(), Instant::now());
        assert!(wait.is_zero());
    }

    #[test]
    fn a_caller_without_others_never_waits_and_its_requests_do_not_count_later() {
        let (fairness, ann, began) = (
            CpuFairness::with_processors(2, 12),
            Arc::from("ann"),
            Instant::now(),
        );
        let send_request = |caller: &Arc<str>, at: Duration| {
            let (wait, reservation) = fairness.enqueue(caller, CpuEstimate::default(), began + at);
            fairness.settle(caller, reservation, MS * 10, began + at);
            wait
        };
        assert!((0..1_000).all(|at| send_request(&ann, MS * at).is_zero()));
        send_request(&Arc::from("ben"), MS * 1_000);
        assert!(
            send_request(&ann, MS * 1_001).is_zero(),
            "ann has used no CPU time since ben became active"
        );
        assert!((0..9).any(|at| !send_request(&ann, MS * (1_002 + at)).is_zero()));
        let later = MS * 1_000 + CONTENTION_WINDOW * 2;
        assert!(
            (0..9).all(|at| send_request(&ann, later + MS * at).is_zero()),
            "ben is not active any more"
        );
    }

    #[test]
    fn zero_means_no_limit() {
        let fairness = CpuFairness::with_processors(2, 0);
        let (caller, now) = (Arc::from("ann"), Instant::now());
        for _ in 0..10_000 {
            let (wait, reservation) = fairness.enqueue(&caller, CpuEstimate::default(), now);
            assert!(wait.is_zero());
            fairness.settle(&caller, reservation, MS, now);
        }
    }
}
