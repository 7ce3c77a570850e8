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

use super::cpu_fairness::{Arrival, Place, Turns, Usual, besides};
use super::cpu_timer::metered;
use super::guarded_body::Lasting;
use super::{Limits, lasts};
use crate::auth::{Caller, Principal};
use crate::http::connections::unauthenticated::Visitor;
use crate::http::problem::{Code, Problem};
use crate::http::server::asks_to_wait;

/// Callers remembered one by one. Whoever comes when so many are busy shares one account with all
/// others of that kind: the table stays bounded (I25).
const MOST: usize = 64 * 1024;
/// Seconds of allowance that may be spent at once: whoever submits some thousands of things is no
/// flood.
const BURST: NonZeroU32 = NonZeroU32::new(5).unwrap();
const CROWD: &str = "everybody else";
/// A refusal takes at least this long, so that asking again at once is no faster than waiting.
const REFUSED: Duration = Duration::from_millis(100);
/// Nobody is kept waiting for a turn longer than this.
const LONGEST: Duration = Duration::from_secs(10);

type Rates<C> =
    RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// The account of every caller of one server.
pub(crate) struct Callers<C: Clock = DefaultClock> {
    rates: Option<Rates<C>>,
    tenants: Option<Rates<C>>,
    clock: C,
    turns: Turns,
    most: [u32; 2],
    busy: Mutex<HashMap<Arc<str>, Busy>>,
    room: usize,
}

/// A caller who has requests under way.
#[derive(Default)]
struct Busy {
    at_once: [u32; 2],
    usual: Usual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request = 0,
    Stream = 1,
}

/// While this lives, one request of its caller is under way.
pub(crate) struct Held<C: Clock> {
    callers: Arc<Callers<C>>,
    who: Arc<str>,
    kind: Kind,
    /// What a request of its caller usually takes.
    usual: Usual,
}

impl Callers {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self::timed(limits, DefaultClock::default(), MOST)
    }
}

impl<C: Clock + Clone> Callers<C> {
    fn timed(limits: &Limits, clock: C, room: usize) -> Self {
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
            turns: Turns::new(limits),
            most: [limits.requests_at_once, limits.streams_at_once],
            busy: Mutex::default(),
            room,
        }
    }

    /// # Errors
    /// 429 with the time to wait, when it is too much.
    fn admit(self: &Arc<Self>, who: &Arc<str>, kind: Kind) -> Result<Held<C>, Problem> {
        self.spend(self.rates.as_ref(), who, "this caller asks")?;
        let mut busy = self.busy.lock();
        let caller = busy.entry(Arc::clone(who)).or_default();
        let (count, most) = (&mut caller.at_once[kind as usize], self.most[kind as usize]);
        if most != 0 && *count >= most {
            let what = match kind {
                Kind::Request => "requests",
                Kind::Stream => "long polls",
            };
            return Err(too_many(format!(
                "{most} {what} of this caller are under way"
            )));
        }
        *count += 1;
        let usual = caller.usual;
        drop(busy);
        Ok(Held {
            usual,
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
            rates.check_key(&CROWD.into())
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

impl<C: Clock> Held<C> {
    /// Waits for its turn.
    async fn turn(&self) -> Place {
        let turns = &self.callers.turns;
        let (wait, place) = turns.stand(&self.who, self.usual, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait.min(LONGEST)).await;
        }
        place
    }

    fn took(&self, place: Place, spent: Duration) {
        let turns = &self.callers.turns;
        turns.took(&self.who, place, spent, Instant::now());
        if let Some(caller) = self.callers.busy.lock().get_mut(&self.who) {
            caller.usual.learn(spent);
        }
    }
}

impl<C: Clock> Drop for Held<C> {
    fn drop(&mut self) {
        let mut busy = self.callers.busy.lock();
        if let Some(caller) = busy.get_mut(&self.who) {
            caller.at_once[self.kind as usize] -= 1;
            if caller.at_once == [0, 0] {
                busy.remove(&self.who);
            }
        }
    }
}

/// Under which name a caller is counted; none, if not at all. An agent and a user of the same
/// name are two.
pub(crate) fn account(principal: &Principal) -> Option<Arc<str>> {
    if principal.service().is_some() || principal.runner().is_some() {
        return None;
    }
    let kind = principal.agent().map_or("caller", |_| "agent");
    Some(format!("{kind} {}", principal.actor()).into())
}

/// Middleware: after the caller is known, before anything is done for them.
pub(crate) async fn counted(callers: Arc<Callers>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    if caller.is_some()
        && let Some(visitor) = request.extensions().get::<Arc<Visitor>>()
    {
        visitor.is_known();
    }
    let Some((who, tenant)) = caller.and_then(|it| Some((account(it)?, it.tenant.clone()))) else {
        return next.run(request).await;
    };
    let streams = lasts(request.uri().path());
    let kind = if streams || asks_to_wait(request.uri().query()) {
        Kind::Stream
    } else {
        Kind::Request
    };
    let besides = besides(request.extensions().get::<Arrival>());
    let admitted = callers.admit(&who, kind).and_then(|held| {
        let within = tenant.map_or(Ok(()), |it| callers.admit_tenant(it.name.as_str()));
        within.map(|()| held)
    });
    match admitted {
        Ok(held) => {
            let place = held.turn().await;
            let (answer, spent) = metered(next.run(request)).await;
            held.took(place, spent + besides);
            if streams {
                // It is under way until its last byte.
                return answer.map(|body| Body::new(Lasting { body, _kept: held }));
            }
            drop(held);
            answer
        }
        Err(problem) => {
            let usual = Usual::refused(besides);
            let (turn, _) = callers.turns.stand(&who, usual, Instant::now());
            tokio::time::sleep(turn.clamp(REFUSED, LONGEST)).await;
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
    ) -> (Arc<Callers<FakeRelativeClock>>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Arc::new(Callers::timed(limits, clock.clone(), room)), clock)
    }

    fn two_a_second() -> Limits {
        Limits {
            requests_per_second: 2,
            ..Limits::default()
        }
    }

    #[test]
    fn s28_each_caller_has_an_allowance_that_grows_back() {
        let (callers, clock) = callers(&two_a_second(), MOST);
        let (ann, ben): (Arc<str>, Arc<str>) = ("ann".into(), "ben".into());
        for _ in 0..10 {
            callers.admit(&ann, Kind::Request).ok().unwrap();
        }
        let refused = callers.admit(&ann, Kind::Request).err().unwrap();
        assert_eq!(
            (refused.code, refused.retry_after_ms),
            (Code::TooManyRequests, Some(500))
        );
        assert!(
            callers.admit(&ben, Kind::Request).is_ok(),
            "ben did nothing"
        );
        clock.advance(Duration::from_millis(500));
        assert!(callers.admit(&ann, Kind::Request).is_ok());
        assert!(callers.admit(&ann, Kind::Request).is_err());
    }

    #[test]
    fn s28_the_users_of_a_tenant_share_an_allowance() {
        let limits = Limits {
            tenant_requests_per_second: 1,
            ..Limits::default()
        };
        let (callers, clock) = callers(&limits, MOST);
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
            callers.admit(&who.into(), Kind::Request).ok().unwrap();
        }
        for stranger in 0..10 {
            callers
                .admit(&format!("s{stranger}").into(), Kind::Request)
                .ok()
                .unwrap();
        }
        assert!(
            callers.admit(&"s9".into(), Kind::Request).is_err(),
            "they share one account"
        );
        assert!(
            callers.admit(&"ann".into(), Kind::Request).is_err(),
            "and ann is among them now"
        );
        assert!(callers.rates.as_ref().unwrap().len() <= 3);
        clock.advance(Duration::from_secs(9));
        assert!(callers.admit(&"s9".into(), Kind::Request).is_ok());
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
        let (callers, _) = callers(&limits, MOST);
        let ann: Arc<str> = "ann".into();
        let stream = callers.admit(&ann, Kind::Stream).ok().unwrap();
        assert!(callers.admit(&ann, Kind::Stream).is_err());
        let one = callers.admit(&ann, Kind::Request).ok().unwrap();
        let two = callers.admit(&ann, Kind::Request).ok().unwrap();
        assert!(callers.admit(&ann, Kind::Request).is_err());
        drop(one);
        assert!(callers.admit(&ann, Kind::Request).is_ok());
        drop((two, stream));
        assert!(
            callers.busy.lock().is_empty(),
            "nothing is kept of who asks for nothing"
        );
    }

    #[test]
    fn who_is_counted_and_who_is_not() {
        let node = Scope::Agent("n1".parse().unwrap());
        let of = |scope| account(&Principal::new("agent-n1", [scope]));
        assert_ne!(of(Scope::Submitter), of(node));
        assert!(of(Scope::Operator).is_some() && of(Scope::Viewer).is_some());
        assert!(of(Scope::Service("blocklist".to_owned())).is_none());
    }
}
