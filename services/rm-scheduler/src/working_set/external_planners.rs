//! State of the external planners: when each one gets the next request, and its last response.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_rm_scheduler_api::policy::PoolPlanner;
use hayward_rm_scheduler_domain::plan::external_planner_effects::ResponseEffect;
use hayward_rm_scheduler_domain::snapshot::external_planners::ExternalPlannerState;
use hayward_rm_scheduler_external_planner::PlannerRequest;
use hayward_vocabulary::Timestamp;

use super::text_change_limit::TextChangeLimit;
use crate::context::OutgoingRequest;
use crate::working_set::Ledger;

/// Minimum number of milliseconds between two requests for a pool.
pub(crate) const PAUSE_MS: u64 = 50;
/// Milliseconds until the same request is sent again. The response may differ, because an external
/// planner may have inputs of its own.
const REPEAT_MS: u64 = 5_000;
/// Milliseconds of back-off after the first failure. The back-off doubles with each further
/// failure, up to [`MAX_BACK_OFF_MS`].
const BACK_OFF_MS: u64 = 500;
const MAX_BACK_OFF_MS: u64 = 60_000;
/// Milliseconds after the timeout of a request until the request counts as lost. The client
/// normally reports the timeout before that.
const GRACE_MS: u64 = 5_000;

#[derive(Default)]
pub(crate) struct ExternalPlanners {
    pub(crate) by_pool: BTreeMap<String, PlannerState>,
    /// Pools whose response was used in the present round.
    pub(crate) pools_with_response: BTreeSet<String>,
    /// Limits how often texts of verdicts from external planners change.
    pub(crate) text_changes: TextChangeLimit,
}

/// State of one external planner.
pub(crate) struct PlannerState {
    pub(crate) planner: PoolPlanner,
    /// Last request, and its time in monotonic milliseconds.
    pub(crate) last_request: Option<(Arc<PlannerRequest>, u64)>,
    /// The request whose response is awaited. `None` if there is none.
    pub(crate) open_request: Option<OpenRequest>,
    /// Monotonic time at which a round is needed for this planner. `None` if none is needed.
    pub(crate) due_ms: Option<u64>,
    /// Number of consecutive failures.
    pub(crate) failures: u64,
    pub(crate) last_failure: Option<(Timestamp, String)>,
    /// Monotonic time before which no request is sent.
    pub(crate) retry_ms: u64,
    pub(crate) last_response: Option<LastResponse>,
}

/// A request without a response.
pub(crate) struct OpenRequest {
    pub(crate) revision: u64,
    /// Monotonic time from which the request counts as lost.
    pub(crate) expires_ms: u64,
}

/// The last response and its effect.
pub(crate) struct LastResponse {
    /// Time at which the response arrived.
    pub(crate) at: Timestamp,
    pub(crate) took_ms: u64,
    /// Revision of the request.
    pub(crate) revision: u64,
    /// Round that used the response, and its effect. `None` until a round has used it.
    pub(crate) effect: Option<(u64, ResponseEffect)>,
}

impl PlannerState {
    fn new(planner: PoolPlanner) -> Self {
        Self {
            planner,
            last_request: None,
            open_request: None,
            due_ms: None,
            failures: 0,
            last_failure: None,
            retry_ms: 0,
            last_response: None,
        }
    }

    /// Returns the monotonic time from which any request may be sent.
    fn ready_ms(&self) -> u64 {
        let ready_ms = self
            .last_request
            .as_ref()
            .map_or(0, |(_, at)| at + PAUSE_MS);
        ready_ms.max(self.retry_ms)
    }

    /// Returns the monotonic time from which this request may be sent. A request with the same
    /// content as the last one waits longer.
    fn ready_for_ms(&self, request: &PlannerRequest) -> u64 {
        let before = self.last_request.as_ref().filter(|_| self.failures == 0);
        let same = before.filter(|(before, _)| before.has_same_content(request));
        same.map_or(0, |(_, at)| at + REPEAT_MS)
            .max(self.ready_ms())
    }

    /// Returns the next request if one may be sent now. The request of a large pool is a large
    /// copy, so it is built only if the pause since the last request is over.
    pub(crate) fn next_request(
        &mut self,
        now_ms: u64,
        has_missing_work: impl FnOnce() -> bool,
        build_request: impl FnOnce() -> Option<PlannerRequest>,
    ) -> Option<OutgoingRequest> {
        let ready_ms = self.ready_ms();
        if now_ms < ready_ms {
            self.due_ms = has_missing_work().then_some(ready_ms);
            return None;
        }
        let Some(request) = build_request() else {
            self.due_ms = None;
            return None;
        };
        let ready_ms = self.ready_for_ms(&request);
        if now_ms < ready_ms {
            self.due_ms = Some(ready_ms);
            return None;
        }
        let expires_ms = now_ms + self.planner.timeout_ms + GRACE_MS;
        self.open_request = Some(OpenRequest {
            revision: request.revision,
            expires_ms,
        });
        self.due_ms = Some(expires_ms);
        let request = Arc::new(request);
        self.last_request = Some((request.clone(), now_ms));
        Some(OutgoingRequest {
            planner: self.planner.clone(),
            request,
        })
    }
}

impl ExternalPlanners {
    /// Returns the monotonic time of the next round that an external planner needs.
    pub fn due_ms(&self) -> Option<u64> {
        let pools = self.by_pool.values().filter_map(|it| it.due_ms);
        pools.chain(self.text_changes.due_ms()).min()
    }

    /// Replaces the planners by those of the policy. Returns the pools with a new planner.
    fn replace(&mut self, wanted: &BTreeMap<String, PoolPlanner>) -> Vec<String> {
        self.by_pool.retain(|pool, _| wanted.contains_key(pool));
        let mut new_pools = Vec::new();
        for (pool, planner) in wanted {
            let state = self.by_pool.get(pool);
            if state.is_none_or(|state| state.planner != *planner) {
                self.by_pool
                    .insert(pool.clone(), PlannerState::new(planner.clone()));
                new_pools.push(pool.clone());
            }
        }
        new_pools
    }
}

/// Returns the milliseconds until the next attempt after this many consecutive failures.
pub(crate) fn back_off_ms(failures: u64) -> u64 {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_u64.checked_shl(doublings.min(32)).unwrap_or(u64::MAX);
    BACK_OFF_MS.saturating_mul(factor).min(MAX_BACK_OFF_MS)
}

impl Ledger {
    /// Applies a policy change. The responses of replaced planners are dropped.
    pub(crate) fn apply_planner_policy(&mut self) {
        let new_pools = self
            .external_planners
            .replace(&self.policy.rules().planners);
        for pool in new_pools {
            self.snapshot
                .set_external_planner(&pool, ExternalPlannerState::default());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_with_each_failure_up_to_a_maximum() {
        let waits: Vec<u64> = [1, 2, 3, 7, 8, 100, u64::MAX].map(back_off_ms).into();
        assert_eq!(waits, [500, 1_000, 2_000, 32_000, 60_000, 60_000, 60_000]);
    }

    pub(crate) fn planner_request() -> PlannerRequest {
        PlannerRequest {
            format: hayward_rm_scheduler_external_planner::FORMAT,
            revision: 7,
            now: Timestamp::default(),
            pool: "batch".into(),
            quantum: hayward_vocabulary::Quantum::default(),
            pools: BTreeMap::new(),
            classes: BTreeMap::new(),
            nodes: Vec::new(),
            work: Vec::new(),
            allocations: Vec::new(),
        }
    }

    #[test]
    fn a_request_is_built_only_when_it_may_be_sent() {
        let mut state = PlannerState::new(PoolPlanner {
            url: "http://127.0.0.1".to_owned(),
            timeout_ms: 10,
        });
        let built = std::cell::Cell::new(0);
        // Returns whether a request was sent, how many were built, and when the next round is due.
        let request_at = |state: &mut PlannerState, now_ms, is_missing: bool, pool: &str| {
            let build_request = || {
                built.set(built.get() + 1);
                let pool = pool.to_owned();
                is_missing.then(|| PlannerRequest {
                    pool,
                    ..planner_request()
                })
            };
            let sent = state
                .next_request(now_ms, || is_missing, build_request)
                .is_some();
            (sent, built.take(), state.due_ms)
        };
        assert_eq!(request_at(&mut state, 1_000, false, "a"), (false, 1, None));
        assert_eq!(
            request_at(&mut state, 1_000, true, "a"),
            (true, 1, Some(6_010))
        );
        // Within the pause no request is built. A pool without missing work needs no round.
        assert_eq!(
            request_at(&mut state, 1_049, true, "b"),
            (false, 0, Some(1_050))
        );
        assert_eq!(request_at(&mut state, 1_049, false, "b"), (false, 0, None));
        // The same request is sent later, and another request at once.
        assert_eq!(
            request_at(&mut state, 1_050, true, "a"),
            (false, 1, Some(6_000))
        );
        assert_eq!(
            request_at(&mut state, 1_050, true, "b"),
            (true, 1, Some(6_060))
        );
        // After failures there is a longer pause.
        (state.failures, state.retry_ms) = (3, 9_000);
        assert_eq!(
            request_at(&mut state, 8_999, true, "c"),
            (false, 0, Some(9_000))
        );
        assert_eq!(
            request_at(&mut state, 9_000, true, "b"),
            (true, 1, Some(14_010))
        );
    }

    #[test]
    fn a_new_address_resets_the_state_of_a_planner() {
        let planner = |url: &str| PoolPlanner {
            url: url.to_owned(),
            timeout_ms: 10,
        };
        let mut planners = ExternalPlanners::default();
        let pool = |url| BTreeMap::from([("batch".to_owned(), planner(url))]);
        assert_eq!(planners.replace(&pool("http://a")), ["batch"]);
        planners.by_pool.get_mut("batch").unwrap().failures = 3;
        assert!(planners.replace(&pool("http://a")).is_empty());
        assert_eq!(planners.by_pool["batch"].failures, 3);
        assert_eq!(planners.replace(&pool("http://b")), ["batch"]);
        assert_eq!(planners.by_pool["batch"].failures, 0);
        planners.replace(&BTreeMap::new());
        assert!(planners.by_pool.is_empty());
    }
}
