//! Rate limit of failed authentications per address (S28).
//!
//! Callers share addresses: all agents of a site, all clients behind a gateway. Therefore only
//! refusals are counted, and a token that was verified before always passes. If an address has used
//! up its bucket, requests with an invalid token get 429 unchecked. Requests with an unknown token
//! wait in a queue for the check of their signature. The queue is full only with thousands of
//! concurrent requests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{CONNECTION, HeaderValue};
use parking_lot::Mutex;

use super::Limits;
use super::token_bucket::TokenBuckets;
use crate::auth::TokenPeek;
use crate::http::authentication::AuthConfig;
use crate::http::connections::unauthenticated::client_network;
use crate::http::request_origin::RequestOrigin;
use crate::problem::{Code, Problem};

/// Size of a bucket, as the time in which it fills.
const BURST: Duration = Duration::from_secs(5);

/// Time between two requests of one address that leave a queue.
const QUEUE_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum wait for the check of a signature.
const MAX_CHECK_WAIT: Duration = Duration::from_secs(8);
/// Maximum delay of a 429 response.
const MAX_REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// Key that all further addresses share once the table is full (I25).
const OVERFLOW_KEY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A queue per address, from which requests pass at a fixed interval.
struct Queue {
    buckets: Mutex<TokenBuckets<IpAddr>>,
    /// Time between two requests of one address.
    interval: Duration,
    /// Maximum wait. A request that would wait longer is refused.
    max_wait: Duration,
}

impl Queue {
    /// Returns how long the next request waits. Returns `None` if the queue is full.
    fn enqueue(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut buckets = self.buckets.lock();
        let wait = buckets.time_until_full(&address, now);
        (wait <= self.max_wait).then(|| {
            buckets.spend(&address, self.interval, now);
            wait
        })
    }
}

/// Limiter of failed authentications of one server.
pub(crate) struct FailedAuthLimiter {
    /// Part of a bucket that one failed authentication uses, as a time. `None` means no limit.
    cost: Option<Duration>,
    failures: Mutex<TokenBuckets<IpAddr>>,
    /// Queue of signature checks. They use at most about a twentieth of a CPU.
    signature_checks: Queue,
    /// Queue of 429 responses. A client that retries at once gets its response no sooner.
    refusals: Queue,
}

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Pass,
    /// Check the token after this wait.
    CheckAfter(Duration),
    /// Respond with 429 after this delay.
    Refuse {
        delay: Duration,
        retry_after: Duration,
    },
}

impl FailedAuthLimiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let queue_with_max_wait = |max_wait| Queue {
            buckets: Mutex::new(TokenBuckets::new(OVERFLOW_KEY)),
            interval: QUEUE_INTERVAL,
            max_wait,
        };
        Self {
            cost: Duration::from_secs(1).checked_div(limits.stranger_requests_per_second),
            failures: Mutex::new(TokenBuckets::new(OVERFLOW_KEY)),
            signature_checks: queue_with_max_wait(MAX_CHECK_WAIT),
            refusals: queue_with_max_wait(MAX_REFUSAL_DELAY),
        }
    }

    fn decide(&self, peek: TokenPeek, address: IpAddr, now: Instant) -> Decision {
        let until_full = self.failures.lock().time_until_full(&address, now);
        let excess = until_full.saturating_sub(BURST);
        if excess.is_zero() || matches!(peek, TokenPeek::Verified | TokenPeek::Probe) {
            return Decision::Pass;
        }
        if peek == TokenPeek::Unverified
            && let Some(wait) = self.signature_checks.enqueue(address, now)
        {
            return Decision::CheckAfter(wait);
        }
        let delay = self.refusals.enqueue(address, now);
        Decision::Refuse {
            delay: delay.unwrap_or_default(),
            retry_after: excess,
        }
    }

    /// Takes a failed authentication out of the bucket of its address.
    fn record(&self, peek: TokenPeek, status: StatusCode, address: IpAddr, now: Instant) {
        let is_failure = status == StatusCode::UNAUTHORIZED || peek == TokenPeek::Rejected;
        if let Some(cost) = self.cost
            && is_failure
        {
            self.failures.lock().spend(&address, cost, now);
        }
    }
}

/// Limits failed authentications. This middleware runs before authentication.
pub(crate) async fn limit_failed_auth(
    limiter: Arc<FailedAuthLimiter>,
    auth_config: Arc<AuthConfig>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let Some(address) = peer.map(|peer| client_network(peer.0.ip())) else {
        return next.run(request).await;
    };
    let peek = auth_config.peek(&request);
    match limiter.decide(peek, address, Instant::now()) {
        Decision::Pass => {}
        Decision::CheckAfter(wait) => tokio::time::sleep(wait).await,
        Decision::Refuse { delay, retry_after } => {
            tokio::time::sleep(delay).await;
            return refusal_response(&auth_config, &request, retry_after);
        }
    }
    let response = next.run(request).await;
    limiter.record(peek, response.status(), address, Instant::now());
    response
}

fn refusal_response(
    auth_config: &AuthConfig,
    request: &Request,
    retry_after: Duration,
) -> Response {
    let ms = u64::try_from(retry_after.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let detail = "too many requests from this address without a valid token";
    let problem = Problem::new(Code::TooManyRequests, detail).retry_after_ms(ms);
    let mut response = problem.into_response();
    if let Some(observer) = &auth_config.observer {
        let origin = RequestOrigin::from_request(request, None).for_command();
        observer.refused(origin, response.status().as_u16());
    }
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    /// Creates a limiter with an address that has used up its bucket.
    fn limiter_with_empty_bucket(now: Instant) -> FailedAuthLimiter {
        let limiter = FailedAuthLimiter::new(&Limits {
            stranger_requests_per_second: 1,
            ..Limits::default()
        });
        for _ in 0..6 {
            assert_eq!(
                limiter.decide(TokenPeek::Rejected, ADDRESS, now),
                Decision::Pass
            );
            limiter.record(TokenPeek::Rejected, StatusCode::UNAUTHORIZED, ADDRESS, now);
        }
        limiter
    }

    #[test]
    fn an_address_with_an_empty_bucket_is_refused_with_a_time_to_retry() {
        let now = Instant::now();
        let limiter = limiter_with_empty_bucket(now);
        let second = Duration::from_secs(1);
        let refused = Decision::Refuse {
            delay: Duration::ZERO,
            retry_after: second,
        };
        assert_eq!(limiter.decide(TokenPeek::Rejected, ADDRESS, now), refused);
        let other_address = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(
            limiter.decide(TokenPeek::Rejected, other_address, now),
            Decision::Pass
        );
        let later = now + second;
        assert_eq!(
            limiter.decide(TokenPeek::Rejected, ADDRESS, later),
            Decision::Pass
        );
    }

    #[test]
    fn verified_tokens_pass_and_unknown_tokens_wait_in_the_queue() {
        let now = Instant::now();
        let limiter = limiter_with_empty_bucket(now);
        for peek in [TokenPeek::Verified, TokenPeek::Probe] {
            assert_eq!(limiter.decide(peek, ADDRESS, now), Decision::Pass);
        }
        // One check every 2 ms, so the maximum wait of 8 s is reached after 4,000 requests.
        for position in 0..=4_000_u64 {
            let wait = Duration::from_millis(position * 2);
            assert_eq!(
                limiter.decide(TokenPeek::Unverified, ADDRESS, now),
                Decision::CheckAfter(wait)
            );
        }
        let full = limiter.decide(TokenPeek::Unverified, ADDRESS, now);
        assert!(matches!(full, Decision::Refuse { .. }), "{full:?}");
    }

    #[test]
    fn refusals_are_delayed_until_there_are_too_many() {
        let now = Instant::now();
        let limiter = limiter_with_empty_bucket(now);
        let delays = (0..600).map(
            |_| match limiter.decide(TokenPeek::Rejected, ADDRESS, now) {
                Decision::Refuse { delay, .. } => delay,
                other => panic!("{other:?}"),
            },
        );
        let delays: Vec<_> = delays.collect();
        // One refusal every 2 ms, so the maximum delay of 1 s is reached after 500 requests.
        assert_eq!(delays[500], Duration::from_secs(1));
        assert_eq!(delays[501], Duration::ZERO);
    }

    #[test]
    fn only_refusals_are_counted() {
        let (limiter, now) = (FailedAuthLimiter::new(&Limits::default()), Instant::now());
        for good in [TokenPeek::Verified, TokenPeek::Unverified] {
            limiter.record(good, StatusCode::OK, ADDRESS, now);
            limiter.record(good, StatusCode::FORBIDDEN, ADDRESS, now);
        }
        assert_eq!(
            limiter.failures.lock().time_until_full(&ADDRESS, now),
            Duration::ZERO
        );
        limiter.record(
            TokenPeek::Unverified,
            StatusCode::UNAUTHORIZED,
            ADDRESS,
            now,
        );
        limiter.record(TokenPeek::Rejected, StatusCode::OK, ADDRESS, now);
        let cost = Duration::from_millis(20);
        assert_eq!(
            limiter.failures.lock().time_until_full(&ADDRESS, now),
            cost * 2
        );
    }

    #[test]
    fn zero_means_no_limit() {
        let limiter = FailedAuthLimiter::new(&Limits {
            stranger_requests_per_second: 0,
            ..Limits::default()
        });
        let now = Instant::now();
        for _ in 0..10_000 {
            limiter.record(TokenPeek::Rejected, StatusCode::UNAUTHORIZED, ADDRESS, now);
        }
        assert_eq!(
            limiter.decide(TokenPeek::Rejected, ADDRESS, now),
            Decision::Pass
        );
    }
}
