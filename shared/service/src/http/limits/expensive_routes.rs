//! Queue in front of expensive routes: explanations, what-if and searches (S28).
//!
//! A few requests run at once, and some more wait in the queue. One caller may use only a part of
//! both. Other requests get 429.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::Limits;
use super::per_caller::caller_key;
use crate::auth::Caller;
use crate::problem::{Code, Problem};

/// Last segments of expensive routes.
const EXPENSIVE_SEGMENTS: [&str; 4] = ["explain", "timeline", "what-if", "inputs"];
/// Query parameters that do not turn a list into a search.
const LIST_PARAMETERS: [&str; 8] = [
    "limit",
    "cursor",
    "min_revision",
    "wait",
    "since",
    "tail",
    "after",
    "dry_run",
];

/// Numbers of requests in the queue or in progress.
#[derive(Debug, Default, PartialEq, Eq)]
struct AdmittedRequests {
    total: usize,
    by_caller: HashMap<Arc<str>, usize>,
}

/// The queue of one server.
pub(crate) struct ExpensiveRoutes {
    workers: Semaphore,
    admitted: Mutex<AdmittedRequests>,
    max_total: usize,
    max_per_caller: usize,
}

/// Guard of one admitted request.
struct Slot<'a> {
    routes: &'a ExpensiveRoutes,
    caller: Arc<str>,
}

impl ExpensiveRoutes {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            workers: Semaphore::new(limits.expensive_at_once),
            admitted: Mutex::default(),
            max_total: limits.expensive_at_once + limits.expensive_waiting,
            max_per_caller: limits.expensive_per_caller,
        }
    }

    /// Counts a request. Returns `None` if the queue or the part of this caller is full.
    fn admit(&self, caller: Arc<str>) -> Option<Slot<'_>> {
        let mut admitted = self.admitted.lock();
        let count_of_caller = admitted.by_caller.get(&caller).copied().unwrap_or(0);
        if admitted.total >= self.max_total || count_of_caller >= self.max_per_caller {
            return None;
        }
        admitted.total += 1;
        let new_count = count_of_caller + 1;
        admitted.by_caller.insert(Arc::clone(&caller), new_count);
        drop(admitted);
        Some(Slot {
            routes: self,
            caller,
        })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut admitted = self.routes.admitted.lock();
        admitted.total -= 1;
        if let Some(count) = admitted.by_caller.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                admitted.by_caller.remove(&self.caller);
            }
        }
    }
}

fn is_expensive(route: &str, query: Option<&str>) -> bool {
    let last = route.rsplit('/').next().unwrap_or(route);
    let names = query.into_iter().flat_map(|query| query.split('&'));
    EXPENSIVE_SEGMENTS.contains(&last)
        || names
            .map(|part| part.split('=').next().unwrap_or(part))
            .any(|name| !name.is_empty() && !LIST_PARAMETERS.contains(&name))
}

/// Queues expensive requests, as a middleware.
pub(crate) async fn queue_expensive(
    routes: Arc<ExpensiveRoutes>,
    request: Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("", MatchedPath::as_str);
    if !is_expensive(route, request.uri().query()) {
        return next.run(request).await;
    }
    let caller = request.extensions().get::<Caller>();
    let key = caller.and_then(|caller| caller_key(caller));
    // Services and task runners have no key of their own and share one.
    let Some(_slot) = routes.admit(key.unwrap_or_else(|| "fleet".into())) else {
        let detail = "too many requests of this kind wait for an answer";
        return Problem::new(Code::TooManyRequests, detail).into_response();
    };
    let worker = routes.workers.acquire().await;
    let response = next.run(request).await;
    drop(worker);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_a_part_of_the_queue() {
        let limits = Limits {
            expensive_at_once: 1,
            expensive_waiting: 2,
            expensive_per_caller: 2,
            ..Limits::default()
        };
        let routes = ExpensiveRoutes::new(&limits);
        let (ann, ben): (Arc<str>, Arc<str>) = ("ann".into(), "ben".into());
        let first = routes.admit(Arc::clone(&ann));
        let second = routes.admit(Arc::clone(&ann));
        assert!(first.is_some() && second.is_some());
        assert!(
            routes.admit(Arc::clone(&ann)).is_none(),
            "ann has used her part"
        );
        let third = routes.admit(Arc::clone(&ben));
        assert!(third.is_some());
        assert!(routes.admit(ben).is_none(), "the queue is full");
        drop((first, second, third));
        assert_eq!(*routes.admitted.lock(), AdmittedRequests::default());
        assert!(routes.admit(ann).is_some());
    }

    #[test]
    fn explanations_and_searches_are_expensive() {
        for route in [
            "/v1/jobs/{id}/explain",
            "/v1/what-if",
            "/v1/rounds/{round}/inputs",
        ] {
            assert!(is_expensive(route, None), "{route}");
        }
        assert!(is_expensive("/v1/jobs", Some("limit=5&user=ann")));
        assert!(!is_expensive("/v1/jobs", Some("limit=5&cursor=abc")));
        assert!(!is_expensive("/v1/jobs/{id}", None) && !is_expensive("", Some("")));
    }
}
