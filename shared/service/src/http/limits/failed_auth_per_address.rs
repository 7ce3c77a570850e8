//! How much may be asked from one address without a good token (S28, F42).
//!
//! Callers share addresses: agents of a site, everybody behind a gateway. So what is counted is
//! what was refused, and whoever shows a token that was good here before is not held up by it,
//! whatever comes from beside them. When an address has used up its allowance, its strangers are
//! told to come later, without a look at anything; and tokens that were never seen here stand in
//! line for the look at their signature, which is the only thing that tells an honest one from a
//! forged one. The line is so long that only thousands at once find no place in it.

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
use super::token_bucket::Debts;
use crate::auth::{Door, Glance};
use crate::http::connections::unauthenticated::neighbourhood;
use crate::http::origin::Origin;
use crate::http::problem::{Code, Problem};

/// So much of the allowance may be used up at once.
const BURST: Duration = Duration::from_secs(5);

/// Whose account those share for whom there is no room (I25).
const CROWD: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Where those of one address stand one behind the other.
struct Line {
    debts: Mutex<Debts<IpAddr>>,
    /// Between two of one address.
    each: Duration,
    /// Whoever would stand longer finds no place.
    longest: Duration,
}

impl Line {
    /// How long the next one stands here.
    fn stand(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut debts = self.debts.lock();
        let wait = debts.of(&address, now);
        (wait <= self.longest).then(|| {
            debts.add(&address, self.each, now);
            wait
        })
    }
}

/// The accounts of one server.
pub(crate) struct Knocks {
    /// What one refusal uses up; none where nothing is counted.
    each: Option<Duration>,
    refused: Mutex<Debts<IpAddr>>,
    /// For the look at a signature: by estimate a twentieth of a processor at most.
    looks: Line,
    /// For the word to come later: whoever asks again at once is no sooner refused for it.
    words: Line,
}

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pass,
    /// When it has stood in line so long.
    Look(Duration),
    /// After so long it is told to come again when that much more has passed.
    Refuse(Duration, Duration),
}

impl Knocks {
    pub(crate) fn new(limits: &Limits) -> Self {
        let line = |each, longest| Line {
            debts: Mutex::new(Debts::new(CROWD)),
            each: Duration::from_millis(each),
            longest: Duration::from_secs(longest),
        };
        Self {
            each: Duration::from_secs(1).checked_div(limits.stranger_requests_per_second),
            refused: Mutex::new(Debts::new(CROWD)),
            looks: line(2, 8),
            words: line(2, 1),
        }
    }

    fn judge(&self, glance: Glance, address: IpAddr, now: Instant) -> Verdict {
        let debt = self.refused.lock().of(&address, now);
        let over = debt.saturating_sub(BURST);
        if over.is_zero() || matches!(glance, Glance::Good | Glance::Alive) {
            return Verdict::Pass;
        }
        if glance == Glance::Unsure
            && let Some(wait) = self.looks.stand(address, now)
        {
            return Verdict::Look(wait);
        }
        let wait = self.words.stand(address, now);
        Verdict::Refuse(wait.unwrap_or_default(), over)
    }

    /// Whether this answer uses up the allowance of its address, and if so, does.
    fn count(&self, glance: Glance, status: StatusCode, address: IpAddr, now: Instant) {
        let stranger = status == StatusCode::UNAUTHORIZED || glance == Glance::Stranger;
        if let Some(each) = self.each
            && stranger
        {
            self.refused.lock().add(&address, each, now);
        }
    }
}

/// Middleware: before anybody looks at who is calling.
pub(crate) async fn heard(
    (knocks, door): (Arc<Knocks>, Arc<Door>),
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let Some(address) = peer.map(|peer| neighbourhood(peer.0.ip())) else {
        return next.run(request).await;
    };
    let glance = door.glance(&request);
    match knocks.judge(glance, address, Instant::now()) {
        Verdict::Pass => {}
        Verdict::Look(wait) => tokio::time::sleep(wait).await,
        Verdict::Refuse(wait, over) => {
            tokio::time::sleep(wait).await;
            return refused(&door, &request, over);
        }
    }
    let answer = next.run(request).await;
    knocks.count(glance, answer.status(), address, Instant::now());
    answer
}

fn refused(door: &Door, request: &Request, over: Duration) -> Response {
    let ms = u64::try_from(over.as_millis()).unwrap_or(u64::MAX).max(1);
    let detail = "too much was asked from this address without a good token";
    let problem = Problem::new(Code::TooManyRequests, detail).retry_after_ms(ms);
    let mut answer = problem.into_response();
    if let Some(witness) = &door.witness {
        let asked = Origin::of(request, None).asked();
        witness.refused(asked, answer.status().as_u16());
    }
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    /// Of an address that has used up its allowance.
    fn flooded(now: Instant) -> Knocks {
        let knocks = Knocks::new(&Limits {
            stranger_requests_per_second: 1,
            ..Limits::default()
        });
        for _ in 0..6 {
            assert_eq!(knocks.judge(Glance::Stranger, FAR, now), Verdict::Pass);
            knocks.count(Glance::Stranger, StatusCode::UNAUTHORIZED, FAR, now);
        }
        knocks
    }

    #[test]
    fn s28_an_address_that_used_up_its_allowance_is_told_when_to_come_again() {
        let now = Instant::now();
        let knocks = flooded(now);
        let second = Duration::from_secs(1);
        let refused = Verdict::Refuse(Duration::ZERO, second);
        assert_eq!(knocks.judge(Glance::Stranger, FAR, now), refused);
        let near = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(knocks.judge(Glance::Stranger, near, now), Verdict::Pass);
        let later = now + second;
        assert_eq!(knocks.judge(Glance::Stranger, FAR, later), Verdict::Pass);
    }

    #[test]
    fn s28_who_is_known_passes_and_who_could_be_ours_stands_in_line() {
        let now = Instant::now();
        let knocks = flooded(now);
        for passes in [Glance::Good, Glance::Alive] {
            assert_eq!(knocks.judge(passes, FAR, now), Verdict::Pass);
        }
        for place in 0..=4_000_u64 {
            let wait = Duration::from_millis(place * 2);
            assert_eq!(knocks.judge(Glance::Unsure, FAR, now), Verdict::Look(wait));
        }
        let full = knocks.judge(Glance::Unsure, FAR, now);
        assert!(matches!(full, Verdict::Refuse(..)), "{full:?}");
    }

    #[test]
    fn s28_a_refusal_takes_its_time_until_there_are_too_many() {
        let now = Instant::now();
        let knocks = flooded(now);
        let waits = (0..600).map(|_| match knocks.judge(Glance::Stranger, FAR, now) {
            Verdict::Refuse(wait, _) => wait,
            other => panic!("{other:?}"),
        });
        let waits: Vec<_> = waits.collect();
        assert_eq!(waits[500], Duration::from_secs(1));
        assert_eq!(waits[501], Duration::ZERO);
    }

    #[test]
    fn s28_what_counts_is_what_was_refused() {
        let (knocks, now) = (Knocks::new(&Limits::default()), Instant::now());
        for good in [Glance::Good, Glance::Unsure] {
            knocks.count(good, StatusCode::OK, FAR, now);
            knocks.count(good, StatusCode::FORBIDDEN, FAR, now);
        }
        assert_eq!(knocks.refused.lock().of(&FAR, now), Duration::ZERO);
        knocks.count(Glance::Unsure, StatusCode::UNAUTHORIZED, FAR, now);
        knocks.count(Glance::Stranger, StatusCode::OK, FAR, now);
        let each = Duration::from_millis(20);
        assert_eq!(knocks.refused.lock().of(&FAR, now), each * 2);
    }

    #[test]
    fn nought_is_no_limit() {
        let knocks = Knocks::new(&Limits {
            stranger_requests_per_second: 0,
            ..Limits::default()
        });
        let now = Instant::now();
        for _ in 0..10_000 {
            knocks.count(Glance::Stranger, StatusCode::UNAUTHORIZED, FAR, now);
        }
        assert_eq!(knocks.judge(Glance::Stranger, FAR, now), Verdict::Pass);
    }
}
