//! How much one caller may ask for: requests in a second (S28), requests and long polls at once
//! (S27). Whoever has a token acts under its subject, so that is who is counted; for whom they act
//! makes no difference (S11). All users of a tenant have an allowance together, beside their own:
//! there the tenant of the user counts for whom somebody acts, because it is theirs to keep.
//!
//! Services of the fleet and runners of tasks are not counted: their number of requests follows
//! from the work there is, and one token of a runner serves all processes of a job.
//!
//! Within what it may ask for, a caller has no more of the processors than its share (G13): see
//! [`mod@crate::http::limits::cpu_fairness`]. To be refused for too much takes a turn as well.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;

use super::cpu_fairness::{ConnectionCost, CpuEstimate, CpuFairness, Reservation, overhead};
use super::cpu_timer::with_cpu_time;
use super::guarded_body::GuardedBody;
use super::{Limits, is_stream};
use crate::auth::{Caller, Principal};
use crate::http::connections::unauthenticated::TrackedConnection;
use crate::http::problem::{Code, Problem};
use crate::http::server::is_long_poll;

/// Callers remembered one by one. Whoever comes when so many are busy shares one account with all
/// others of that kind: the table stays bounded (I25).
const MAX_KEYS: usize = 64 * 1024;
/// Seconds of allowance that may be spent at once: whoever submits some thousands of things is no
/// flood.
const BURST: NonZeroU32 = NonZeroU32::new(5).unwrap();
const OVERFLOW_KEY: &str = "everybody else";
/// A refusal takes at least this long, so that asking again at once is no faster than waiting.
const MIN_REFUSAL_TIME: Duration = Duration::from_millis(100);
/// Nobody is kept waiting for a turn longer than this.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(10);

type Rates<C> =
    RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// The account of every caller of one server.
pub(crate) struct CallerLimits<C: Clock = DefaultClock> {
    rates: Option<Rates<C>>,
    tenants: Option<Rates<C>>,
    clock: C,
    fairness: CpuFairness,
    max_active: [u32; 2],
    active: Mutex<HashMap<Arc<str>, ActiveCaller>>,
    room: usize,
}

/// A caller who has requests under way.
#[derive(Default)]
struct ActiveCaller {
    at_once: [u32; 2],
    estimate: CpuEstimate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Request = 0,
    Stream = 1,
}

/// While this lives, one request of its caller is under way.
pub(crate) struct ActiveRequest<C: Clock> {
    callers: Arc<CallerLimits<C>>,
    who: Arc<str>,
    kind: RequestKind,
    /// What a request of its caller usually takes.
    estimate: CpuEstimate,
}

impl CallerLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self::with_clock(limits, DefaultClock::default(), MAX_KEYS)
    }
}

impl<C: Clock + Clone> CallerLimits<C> {
    fn with_clock(limits: &Limits, clock: C, room: usize) -> Self {
        let rates = |each: u32| {
            let each = NonZeroU32::new(each)?;
            let quota = Quota::per_second(each).allow_burst(each.saturating_mul(BURST));
            let store = HashMapStateStore::default();
            Some(RateLimiter::new(quota, store, clock.clone()))
        };
        Self {
            rates: rates(limits.requests_per_second),
            tenants: rates(limits.tenant_requests_per_second),
            clock,
            fairness: CpuFairness::new(limits),
            max_active: [limits.requests_at_once, limits.streams_at_once],
            active: Mutex::default(),
            room,
        }
    }

    /// # Errors
    /// 429 with the time to wait, when it is too much.
    fn admit(
        self: &Arc<Self>,
        who: &Arc<str>,
        kind: RequestKind,
    ) -> Result<ActiveRequest<C>, Problem> {
        self.spend(self.rates.as_ref(), who, "this caller asks")?;
        let mut active = self.active.lock();
        let caller = active.entry(Arc::clone(who)).or_default();
        let (count, max_active) = (
            &mut caller.at_once[kind as usize],
            self.max_active[kind as usize],
        );
        if max_active != 0 && *count >= max_active {
            let what = match kind {
                RequestKind::Request => "requests",
                RequestKind::Stream => "long polls",
            };
            return Err(too_many(format!(
                "{max_active} {what} of this caller are under way"
            )));
        }
        *count += 1;
        let estimate = caller.estimate;
        drop(active);
        Ok(ActiveRequest {
            estimate,
            callers: Arc::clone(self),
            who: Arc::clone(who),
            kind,
        })
    }

    /// One request of this tenant; its users together may make so many.
    fn admit_tenant(&self, tenant: &str) -> Result<(), Problem> {
        self.spend(
            self.tenants.as_ref(),
            &tenant.into(),
            "the users of this tenant ask",
        )
    }

    fn spend(&self, rates: Option<&Rates<C>>, who: &Arc<str>, what: &str) -> Result<(), Problem> {
        let Some(rates) = rates else {
            return Ok(());
        };
        if rates.len() >= self.room {
            // Forgets whoever has their whole allowance again: nothing is lost by that.
            rates.retain_recent();
        }
        let crowd = rates.len() >= self.room;
        let spent = if crowd {
            rates.check_key(&OVERFLOW_KEY.into())
        } else {
            rates.check_key(who)
        };
        spent.map_err(|refused| {
            let wait = refused.wait_time_from(self.clock.now());
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            too_many(format!("{what} more often than allowed")).retry_after_ms(ms)
        })
    }
}

fn too_many(detail: String) -> Problem {
    Problem::new(Code::TooManyRequests, detail)
}

impl<C: Clock> ActiveRequest<C> {
    /// Waits for its turn.
    async fn wait_for_cpu(&self) -> Reservation {
        let fairness = &self.callers.fairness;
        let (wait, reservation) = fairness.enqueue(&self.who, self.estimate, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait.min(MAX_QUEUE_TIME)).await;
        }
        reservation
    }

    fn settle(&self, reservation: Reservation, spent: Duration) {
        let fairness = &self.callers.fairness;
        fairness.settle(&self.who, reservation, spent, Instant::now());
        if let Some(caller) = self.callers.active.lock().get_mut(&self.who) {
            caller.estimate.observe(spent);
        }
    }
}

impl<C: Clock> Drop for ActiveRequest<C> {
    fn drop(&mut self) {
        let mut active = self.callers.active.lock();
        if let Some(caller) = active.get_mut(&self.who) {
            caller.at_once[self.kind as usize] -= 1;
            if caller.at_once == [0, 0] {
                active.remove(&self.who);
            }
        }
    }
}

/// Under which name a caller is counted; none, if not at all. An agent and a user of the same
/// name are two.
pub(crate) fn caller_key(principal: &Principal) -> Option<Arc<str>> {
    if principal.service().is_some() || principal.runner().is_some() {
        return None;
    }
    let kind = principal.agent().map_or("caller", |_| "agent");
    Some(format!("{kind} {}", principal.actor()).into())
}

/// Middleware: after the caller is known, before anything is done for them.
pub(crate) async fn limit_callers(
    callers: Arc<CallerLimits>,
    request: Request,
    next: Next,
) -> Response {
    let caller = request.extensions().get::<Caller>();
    if caller.is_some()
        && let Some(connection) = request.extensions().get::<Arc<TrackedConnection>>()
    {
        connection.authenticated();
    }
    let Some((who, tenant)) = caller.and_then(|it| Some((caller_key(it)?, it.tenant.clone())))
    else {
        return next.run(request).await;
    };
    let is_stream = is_stream(request.uri().path());
    let kind = if is_stream || is_long_poll(request.uri().query()) {
        RequestKind::Stream
    } else {
        RequestKind::Request
    };
    let overhead = overhead(request.extensions().get::<ConnectionCost>());
    let admitted = callers.admit(&who, kind).and_then(|request_guard| {
        let within = tenant.map_or(Ok(()), |it| callers.admit_tenant(it.name.as_str()));
        within.map(|()| request_guard)
    });
    match admitted {
        Ok(request_guard) => {
            let reservation = request_guard.wait_for_cpu().await;
            let (answer, spent) = with_cpu_time(next.run(request)).await;
            request_guard.settle(reservation, spent + overhead);
            if is_stream {
                // It is under way until its last byte.
                return answer.map(|body| {
                    Body::new(GuardedBody {
                        body,
                        _guard: request_guard,
                    })
                });
            }
            drop(request_guard);
            answer
        }
        Err(problem) => {
            let estimate = CpuEstimate::refused(overhead);
            let (turn, _) = callers.fairness.enqueue(&who, estimate, Instant::now());
            tokio::time::sleep(turn.clamp(MIN_REFUSAL_TIME, MAX_QUEUE_TIME)).await;
            problem.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use governor::clock::FakeRelativeClock;

    use super::*;
    use crate::auth::Scope;

    fn callers(
        limits: &Limits,
        room: usize,
    ) -> (Arc<CallerLimits<FakeRelativeClock>>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (
            Arc::new(CallerLimits::with_clock(limits, clock.clone(), room)),
            clock,
        )
    }

    fn two_a_second() -> Limits {
        Limits {
            requests_per_second: 2,
            ..Limits::default()
        }
    }

    #[test]
    fn s28_each_caller_has_an_allowance_that_grows_back() {
        let (callers, clock) = callers(&two_a_second(), MAX_KEYS);
        let (ann, ben): (Arc<str>, Arc<str>) = ("ann".into(), "ben".into());
        for _ in 0..10 {
            callers.admit(&ann, RequestKind::Request).ok().unwrap();
        }
        let refused = callers.admit(&ann, RequestKind::Request).err().unwrap();
        assert_eq!(
            (refused.code, refused.retry_after_ms),
            (Code::TooManyRequests, Some(500))
        );
        assert!(
            callers.admit(&ben, RequestKind::Request).is_ok(),
            "ben did nothing"
        );
        clock.advance(Duration::from_millis(500));
        assert!(callers.admit(&ann, RequestKind::Request).is_ok());
        assert!(callers.admit(&ann, RequestKind::Request).is_err());
    }

    #[test]
    fn s28_the_users_of_a_tenant_share_an_allowance() {
        let limits = Limits {
            tenant_requests_per_second: 1,
            ..Limits::default()
        };
        let (callers, clock) = callers(&limits, MAX_KEYS);
        for _ in 0..5 {
            callers.admit_tenant("acme").unwrap();
        }
        let refused = callers.admit_tenant("acme").unwrap_err();
        assert_eq!(refused.retry_after_ms, Some(1_000));
        assert!(callers.admit_tenant("globex").is_ok());
        clock.advance(Duration::from_secs(1));
        assert!(callers.admit_tenant("acme").is_ok());
    }

    #[test]
    fn i25_the_table_is_bounded_and_forgets_only_who_has_everything_again() {
        let (callers, clock) = callers(&two_a_second(), 2);
        for who in ["ann", "ben"] {
            callers
                .admit(&who.into(), RequestKind::Request)
                .ok()
                .unwrap();
        }
        for stranger in 0..10 {
            callers
                .admit(&format!("s{stranger}").into(), RequestKind::Request)
                .ok()
                .unwrap();
        }
        assert!(
            callers.admit(&"s9".into(), RequestKind::Request).is_err(),
            "they share one account"
        );
        assert!(
            callers.admit(&"ann".into(), RequestKind::Request).is_err(),
            "and ann is among them now"
        );
        assert!(callers.rates.as_ref().unwrap().len() <= 3);
        clock.advance(Duration::from_secs(9));
        assert!(callers.admit(&"s9".into(), RequestKind::Request).is_ok());
        assert_eq!(callers.rates.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn s27_requests_and_streams_at_once_are_counted_apart_and_given_back() {
        let limits = Limits {
            requests_per_second: 0,
            requests_at_once: 2,
            streams_at_once: 1,
            ..Limits::default()
        };
        let (callers, _) = callers(&limits, MAX_KEYS);
        let ann: Arc<str> = "ann".into();
        let stream = callers.admit(&ann, RequestKind::Stream).ok().unwrap();
        assert!(callers.admit(&ann, RequestKind::Stream).is_err());
        let one = callers.admit(&ann, RequestKind::Request).ok().unwrap();
        let two = callers.admit(&ann, RequestKind::Request).ok().unwrap();
        assert!(callers.admit(&ann, RequestKind::Request).is_err());
        drop(one);
        assert!(callers.admit(&ann, RequestKind::Request).is_ok());
        drop((two, stream));
        assert!(
            callers.active.lock().is_empty(),
            "nothing is kept of who asks for nothing"
        );
    }

    #[test]
    fn who_is_counted_and_who_is_not() {
        let node = Scope::Agent("n1".parse().unwrap());
        let of = |scope| caller_key(&Principal::new("agent-n1", [scope]));
        assert_ne!(of(Scope::Submitter), of(node));
        assert!(of(Scope::Operator).is_some() && of(Scope::Viewer).is_some());
        assert!(of(Scope::Service("blocklist".to_owned())).is_none());
    }
}
