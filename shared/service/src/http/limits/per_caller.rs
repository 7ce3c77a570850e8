//! Limits per caller: requests per second, concurrent requests, and concurrent long polls (S28).
//!
//! The caller is the subject of the token, even if it acts for a user. All users of a tenant share
//! a second bucket. If the caller acts for a user, the tenant is that of the user.
//!
//! Services of the fleet and task runners are not limited. Their requests follow from the work, and
//! one runner token serves all processes of a job.
//!
//! Within these limits a caller has no more than its CPU share. Refusals use CPU time too: see
//! [`mod@super::cpu_fairness`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;

use super::cpu_fairness::{
    ConnectionCost, CpuEstimate, CpuFairness, Reservation, request_overhead,
};
use super::cpu_timer::with_cpu_time;
use super::guarded_body::GuardedBody;
use super::token_bucket::{MAX_KEYS, TokenBuckets};
use super::{Limits, is_stream};
use crate::auth::{Caller, Principal};
use crate::http::connections::unauthenticated::TrackedConnection;
use crate::http::server::is_long_poll;
use crate::problem::{Code, Problem};

/// Size of a bucket, as the time in which it fills. It permits a client that submits some thousands
/// of items.
const BURST: Duration = Duration::from_secs(5);
/// Key of the bucket that further callers share once the table is full.
const OVERFLOW_KEY: &str = "everybody else";
/// Minimum delay of a refusal. A client that retries at once then gains nothing.
const MIN_REFUSAL_TIME: Duration = Duration::from_millis(100);
/// Maximum wait for CPU time.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(10);

/// Token buckets by key, all with the same rate.
struct RateLimit {
    /// Time that one request takes out of a bucket.
    cost: Duration,
    buckets: Mutex<TokenBuckets<Arc<str>>>,
}

impl RateLimit {
    /// Creates the limit. Returns `None` if the rate is 0, which means no limit.
    fn new(per_second: u32, max_keys: usize) -> Option<Self> {
        let buckets = TokenBuckets::with_capacity(max_keys, OVERFLOW_KEY.into());
        Some(Self {
            cost: Duration::from_secs(1).checked_div(per_second)?,
            buckets: Mutex::new(buckets),
        })
    }
}

/// The limits per caller of one server.
pub(crate) struct CallerLimits {
    per_caller: Option<RateLimit>,
    per_tenant: Option<RateLimit>,
    fairness: CpuFairness,
    /// Maximum number of concurrent requests, by [`RequestKind`]. 0 means no limit.
    max_active: [u32; 2],
    active: Mutex<HashMap<Arc<str>, ActiveCaller>>,
}

/// A caller with requests in progress.
#[derive(Default)]
struct ActiveCaller {
    /// Concurrent requests by [`RequestKind`].
    active_counts: [u32; 2],
    estimate: CpuEstimate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Request = 0,
    Stream = 1,
}

/// Guard of one request in progress.
pub(crate) struct ActiveRequest {
    callers: Arc<CallerLimits>,
    caller: Arc<str>,
    kind: RequestKind,
    estimate: CpuEstimate,
}

impl CallerLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self::with_capacity(limits, MAX_KEYS)
    }

    fn with_capacity(limits: &Limits, max_keys: usize) -> Self {
        Self {
            per_caller: RateLimit::new(limits.requests_per_second, max_keys),
            per_tenant: RateLimit::new(limits.tenant_requests_per_second, max_keys),
            fairness: CpuFairness::new(limits),
            max_active: [limits.requests_at_once, limits.streams_at_once],
            active: Mutex::default(),
        }
    }

    /// Admits a request or refuses it.
    ///
    /// # Errors
    /// 429 with the time to wait.
    fn admit(
        self: &Arc<Self>,
        caller: &Arc<str>,
        kind: RequestKind,
        now: Instant,
    ) -> Result<ActiveRequest, Problem> {
        spend(self.per_caller.as_ref(), caller, "this caller asks", now)?;
        let mut active_callers = self.active.lock();
        let active = active_callers.entry(Arc::clone(caller)).or_default();
        let max_active = self.max_active[kind as usize];
        let count = &mut active.active_counts[kind as usize];
        if max_active != 0 && *count >= max_active {
            let kind_name = match kind {
                RequestKind::Request => "requests",
                RequestKind::Stream => "long polls",
            };
            return Err(too_many_requests(format!(
                "{max_active} {kind_name} of this caller are under way"
            )));
        }
        *count += 1;
        let estimate = active.estimate;
        drop(active_callers);
        Ok(ActiveRequest {
            callers: Arc::clone(self),
            caller: Arc::clone(caller),
            kind,
            estimate,
        })
    }

    fn admit_tenant(&self, tenant: &str, now: Instant) -> Result<(), Problem> {
        let what = "the users of this tenant ask";
        spend(self.per_tenant.as_ref(), &tenant.into(), what, now)
    }
}

/// Takes one request out of the bucket of a key. `what` begins the message of a refusal.
fn spend(
    limit: Option<&RateLimit>,
    key: &Arc<str>,
    what: &str,
    now: Instant,
) -> Result<(), Problem> {
    let Some(limit) = limit else {
        return Ok(());
    };
    let mut buckets = limit.buckets.lock();
    let spent = buckets.try_spend(key, limit.cost, BURST, now);
    spent.map_err(|wait| {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        too_many_requests(format!("{what} more often than allowed")).retry_after_ms(ms)
    })
}

fn too_many_requests(detail: String) -> Problem {
    Problem::new(Code::TooManyRequests, detail)
}

impl ActiveRequest {
    /// Reserves CPU time for the request, and waits while the caller has used up its share.
    async fn wait_for_cpu(&self) -> Reservation {
        let fairness = &self.callers.fairness;
        let (wait, reservation) = fairness.enqueue(&self.caller, self.estimate, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait.min(MAX_QUEUE_TIME)).await;
        }
        reservation
    }

    /// Replaces the reservation with the CPU time that the request has used.
    fn settle(&self, reservation: Reservation, spent: Duration) {
        let fairness = &self.callers.fairness;
        fairness.settle(&self.caller, reservation, spent, Instant::now());
        if let Some(active) = self.callers.active.lock().get_mut(&self.caller) {
            active.estimate.observe(spent);
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut active_callers = self.callers.active.lock();
        if let Some(active) = active_callers.get_mut(&self.caller) {
            active.active_counts[self.kind as usize] -= 1;
            if active.active_counts == [0, 0] {
                active_callers.remove(&self.caller);
            }
        }
    }
}

/// Returns the key under which a caller is limited. Returns `None` if it is not limited. An agent
/// and a user of the same name have two keys.
pub(crate) fn caller_key(principal: &Principal) -> Option<Arc<str>> {
    if principal.service().is_some() || principal.runner().is_some() {
        return None;
    }
    let kind = principal.agent().map_or("caller", |_| "agent");
    Some(format!("{kind} {}", principal.actor()).into())
}

/// Limits a request as soon as its caller is known, as a middleware.
pub(crate) async fn limit_callers(
    callers: Arc<CallerLimits>,
    request: Request,
    next: Next,
) -> Response {
    let principal = request.extensions().get::<Caller>();
    if principal.is_some()
        && let Some(connection) = request.extensions().get::<Arc<TrackedConnection>>()
    {
        connection.mark_authenticated();
    }
    let key_and_tenant = principal.and_then(|it| Some((caller_key(it)?, it.tenant.clone())));
    let Some((caller, tenant)) = key_and_tenant else {
        return next.run(request).await;
    };
    let is_stream = is_stream(request.uri().path());
    let kind = if is_stream || is_long_poll(request.uri().query()) {
        RequestKind::Stream
    } else {
        RequestKind::Request
    };
    let overhead = request_overhead(request.extensions().get::<ConnectionCost>());
    let now = Instant::now();
    let admission = callers.admit(&caller, kind, now).and_then(|active| {
        let tenant_result = tenant.map_or(Ok(()), |it| callers.admit_tenant(it.name.as_str(), now));
        tenant_result.map(|()| active)
    });
    match admission {
        Ok(active) => {
            let reservation = active.wait_for_cpu().await;
            let (response, spent) = with_cpu_time(next.run(request)).await;
            active.settle(reservation, spent + overhead);
            if is_stream {
                // The request is in progress until the last byte of the response.
                let guard_body = |body| GuardedBody {
                    body,
                    _guard: active,
                };
                return response.map(|body| Body::new(guard_body(body)));
            }
            drop(active);
            response
        }
        Err(problem) => {
            let estimate = CpuEstimate::for_refusal(overhead);
            let (wait, _) = callers.fairness.enqueue(&caller, estimate, now);
            tokio::time::sleep(wait.clamp(MIN_REFUSAL_TIME, MAX_QUEUE_TIME)).await;
            problem.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scope;

    fn callers(limits: &Limits, max_keys: usize) -> Arc<CallerLimits> {
        Arc::new(CallerLimits::with_capacity(limits, max_keys))
    }

    fn two_requests_per_second() -> Limits {
        Limits {
            requests_per_second: 2,
            ..Limits::default()
        }
    }

    /// The bucket refills at the rate of the limit (S28).
    #[test]
    fn each_caller_has_a_bucket_that_refills() {
        let (callers, now) = (
            callers(&two_requests_per_second(), MAX_KEYS),
            Instant::now(),
        );
        let (ann, ben): (Arc<str>, Arc<str>) = ("ann".into(), "ben".into());
        let admit = |caller: &Arc<str>, now| callers.admit(caller, RequestKind::Request, now);
        for _ in 0..10 {
            admit(&ann, now).ok().unwrap();
        }
        let refused = admit(&ann, now).err().unwrap();
        assert_eq!(
            (refused.code, refused.retry_after_ms),
            (Code::TooManyRequests, Some(500))
        );
        assert!(admit(&ben, now).is_ok(), "ben sent nothing");
        let later = now + Duration::from_millis(500);
        assert!(admit(&ann, later).is_ok());
        assert!(admit(&ann, later).is_err());
    }

    /// Other tenants have their own buckets (S28).
    #[test]
    fn the_users_of_a_tenant_share_a_bucket() {
        let limits = Limits {
            tenant_requests_per_second: 1,
            ..Limits::default()
        };
        let (callers, now) = (callers(&limits, MAX_KEYS), Instant::now());
        for _ in 0..5 {
            callers.admit_tenant("acme", now).unwrap();
        }
        let refused = callers.admit_tenant("acme", now).unwrap_err();
        assert_eq!(refused.retry_after_ms, Some(1_000));
        assert!(callers.admit_tenant("globex", now).is_ok());
        let later = now + Duration::from_secs(1);
        assert!(callers.admit_tenant("acme", later).is_ok());
    }

    /// A full bucket needs no entry (I25).
    #[test]
    fn the_table_is_bounded_and_drops_only_full_buckets() {
        let (callers, now) = (callers(&two_requests_per_second(), 2), Instant::now());
        let admit = |caller: &str, now| callers.admit(&caller.into(), RequestKind::Request, now);
        let keys = || callers.per_caller.as_ref().unwrap().buckets.lock().len();
        for caller in ["ann", "ben"] {
            admit(caller, now).ok().unwrap();
        }
        for number in 0..10 {
            admit(&format!("s{number}"), now).ok().unwrap();
        }
        assert!(
            admit("s9", now).is_err(),
            "callers without their own bucket share the overflow bucket"
        );
        assert!(
            admit("ann", now).is_err(),
            "ann shares the overflow bucket while the table is full"
        );
        assert!(keys() <= 3);
        assert!(admit("s9", now + Duration::from_secs(9)).is_ok());
        assert_eq!(keys(), 1);
    }

    /// Long polls have their own limit (S27).
    #[test]
    fn requests_and_streams_at_once_are_counted_separately() {
        let limits = Limits {
            requests_per_second: 0,
            requests_at_once: 2,
            streams_at_once: 1,
            ..Limits::default()
        };
        let callers = callers(&limits, MAX_KEYS);
        let ann: Arc<str> = "ann".into();
        let admit = |kind| callers.admit(&ann, kind, Instant::now());
        let stream = admit(RequestKind::Stream).ok().unwrap();
        assert!(admit(RequestKind::Stream).is_err());
        let one = admit(RequestKind::Request).ok().unwrap();
        let two = admit(RequestKind::Request).ok().unwrap();
        assert!(admit(RequestKind::Request).is_err());
        drop(one);
        assert!(admit(RequestKind::Request).is_ok());
        drop((two, stream));
        assert!(callers.active.lock().is_empty(), "idle callers are dropped");
    }

    #[test]
    fn services_are_not_limited_and_agents_have_other_keys_than_users() {
        let node = Scope::Agent("n1".parse().unwrap());
        let key = |scope| caller_key(&Principal::new("agent-n1", [scope]));
        assert_ne!(key(Scope::Submitter), key(node));
        assert!(key(Scope::Operator).is_some() && key(Scope::Viewer).is_some());
        assert!(key(Scope::Service("blocklist".to_owned())).is_none());
    }
}
