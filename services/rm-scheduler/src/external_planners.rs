//! External planners: when each one gets a request, and how its response is applied.
//!
//! A round never waits for a response. After the commit of a round, a request about the work that
//! lacks processes is sent. The response becomes part of the snapshot. The next round takes those
//! steps of the response that are still valid. A round therefore depends on its snapshot alone, and
//! can be replayed without the external planner. A pool has one open request at a time. After
//! failures the interval between requests grows.

mod client;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_domain::Plan;
use hayward_rm_scheduler_domain::plan::external_planner_effects::ResponseEffect;
use hayward_rm_scheduler_domain::snapshot::external_planners::ExternalPlannerState;
use hayward_rm_scheduler_external_planner::{
    ExternalPoolTrees, PlannerRequest, has_missing_work, relevant_notes,
};
use hayward_vocabulary::WorkId;

use crate::command::PlannerOutcome;
use crate::store::Rows;
use crate::working_set::Ledger;
use crate::working_set::external_planners::{LastResponse, PAUSE_MS, back_off_ms};

pub use client::start;
pub use view::list_planners;

/// Returns the text before the first colon. The text after the colon is from the external planner
/// and may differ in each response, which would change the verdicts of all waiting work each time.
fn without_planner_text(why: &str) -> &str {
    why.split_once(": ").map_or(why, |(text, _)| text)
}

impl Ledger {
    /// Returns true if an external planner needs a round now. Returns true once for each due time.
    pub(crate) fn planners_are_due(&mut self, now_ms: u64) -> bool {
        let mut due = self.external_planners.text_changes.take_due(now_ms);
        for state in self.external_planners.by_pool.values_mut() {
            if state.due_ms.is_some_and(|at| at <= now_ms) {
                state.due_ms = None;
                due = true;
            }
        }
        due
    }

    /// Applies the response of an external planner, or its failure.
    pub(crate) fn apply_planner_outcome(
        &mut self,
        planner_outcome: PlannerOutcome,
        moment: &Moment,
    ) {
        let PlannerOutcome {
            pool,
            revision,
            took_ms,
            outcome,
        } = planner_outcome;
        let Some(state) = self.external_planners.by_pool.get_mut(&pool) else {
            return;
        };
        // The outcome is dropped if the request has expired, or if the policy now names another
        // planner for the pool.
        let open_request = state.open_request.as_ref();
        if open_request.is_none_or(|open| open.revision != revision) {
            return;
        }
        state.open_request = None;
        state.due_ms = None;
        let planner_state = self.snapshot.external_planners.get(&pool).cloned();
        let mut planner_state = planner_state.unwrap_or_default();
        match outcome {
            Ok(response) => {
                state.failures = 0;
                state.retry_ms = 0;
                state.last_response = Some(LastResponse {
                    at: moment.now,
                    took_ms,
                    revision,
                    effect: None,
                });
                planner_state.response = Some(response);
                planner_state.no_response_reason = None;
                self.timing.request_round();
            }
            Err(why) => {
                state.failures = state.failures.saturating_add(1);
                state.retry_ms = moment.monotonic_ms + back_off_ms(state.failures);
                state.due_ms = Some(state.retry_ms);
                state.last_failure = Some((moment.now, why.clone()));
                if state.failures == 1 {
                    tracing::warn!(pool, why, "the external planner did not answer");
                }
                let why = without_planner_text(&why).to_owned();
                self.timing
                    .request_round_if(planner_state.no_response_reason.as_ref() != Some(&why));
                planner_state.no_response_reason = Some(why);
            }
        }
        self.snapshot.set_external_planner(&pool, planner_state);
    }

    /// Stores the effects of responses, and sends requests when the batch is committed. The
    /// snapshot still shows processes that need a successor as leaving, so a request covers their
    /// successors.
    pub(crate) fn update_external_planners(
        &mut self,
        plan: &mut Plan,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.external_planners.by_pool.is_empty() {
            return;
        }
        self.external_planners.pools_with_response =
            plan.external_planners.keys().cloned().collect();
        let trees = ExternalPoolTrees::new(&self.snapshot);
        let changed_pools = self.pools_changed_by(plan, &trees);
        self.store_results(std::mem::take(&mut plan.external_planners));
        self.drop_stale_notes(&trees);
        // While a neighbour is silent, it is unknown which work lacks processes.
        if self.timing.stale_neighbour().is_some() {
            return;
        }
        let (now_ms, round) = (moment.monotonic_ms, self.timing.round());
        let mut requests = Vec::new();
        for (pool, state) in &mut self.external_planners.by_pool {
            let open_request = state.open_request.as_ref();
            if let Some(open) = open_request.filter(|open| now_ms < open.expires_ms) {
                state.due_ms = Some(open.expires_ms);
                continue;
            }
            if changed_pools.contains(pool) {
                // The next request must include the decisions of this round.
                state.due_ms = Some(now_ms + PAUSE_MS);
                continue;
            }
            let snapshot = &*self.snapshot;
            let is_missing = || has_missing_work(snapshot, &trees, pool);
            let build_request = || PlannerRequest::new(snapshot, &trees, pool, round);
            requests.extend(state.next_request(now_ms, is_missing, build_request));
        }
        if requests.is_empty() {
            return;
        }
        let context = self.context.clone();
        batch.once_committed(move |_| {
            for request in requests {
                context.planner_requests.send(request);
            }
        });
    }

    /// Returns true if an external planner plans the pool of this work and this round used no
    /// response for it.
    pub(crate) fn awaits_external_planner(&self, work: &WorkId) -> bool {
        if self.external_planners.by_pool.is_empty() {
            return false;
        }
        let snapshot = &*self.snapshot;
        let demand = snapshot.demand.get(work);
        let trees = ExternalPoolTrees::new(snapshot);
        let pool = demand.and_then(|demand| trees.top_of_work(snapshot, demand));
        pool.is_some_and(|pool| !self.external_planners.pools_with_response.contains(pool))
    }

    /// Returns the pools with an external planner in which the plan has a grant or a vacate.
    fn pools_changed_by(&self, plan: &Plan, trees: &ExternalPoolTrees) -> BTreeSet<String> {
        let (snapshot, mut pools) = (&*self.snapshot, BTreeSet::new());
        let granted = plan.grants.iter().filter_map(|grant| {
            let class = snapshot.classes.get(&*grant.class)?;
            trees.top_of_pool(&class.pool)
        });
        let leaving = plan.vacates.iter().filter_map(|order| {
            let allocation = snapshot.allocations.get(&order.allocation)?;
            trees.top_of_allocation(snapshot, allocation)
        });
        pools.extend(granted.chain(leaving).map(str::to_owned));
        pools
    }

    /// Drops the notes of external planners about work that no longer lacks processes.
    fn drop_stale_notes(&mut self, trees: &ExternalPoolTrees) {
        let snapshot = &*self.snapshot;
        let updates = snapshot
            .external_planners
            .iter()
            .filter_map(|(pool, state)| {
                let last = state.last_result.as_ref()?;
                let has_notes = !last.notes.is_empty() || !last.refused.is_empty();
                let relevant = has_notes.then(|| relevant_notes(snapshot, trees, pool, last))?;
                let state = || ExternalPlannerState {
                    last_result: Some(relevant.clone()),
                    ..state.clone()
                };
                (relevant != *last).then(|| (pool.clone(), state()))
            });
        for (pool, state) in updates.collect::<Vec<_>>() {
            self.snapshot.set_external_planner(&pool, state);
        }
    }

    /// Stores the effect of each response. Removes the response from the snapshot, because a
    /// response is used once.
    fn store_results(&mut self, mut effects: BTreeMap<String, ResponseEffect>) {
        let pools_with_response: Vec<String> = {
            let pools = self.snapshot.external_planners.iter();
            let with_response = pools.filter(|(_, it)| it.response.is_some());
            with_response.map(|(pool, _)| pool.clone()).collect()
        };
        for pool in pools_with_response {
            let planner_state = self.snapshot.external_planners.get(&pool).cloned();
            let mut planner_state = planner_state.unwrap_or_default();
            planner_state.response = None;
            let state = self.external_planners.by_pool.get_mut(&pool);
            if let (Some(state), Some(effect)) = (state, effects.remove(&pool)) {
                planner_state.last_result = Some(effect.result.clone());
                if effect.refusals > 0 {
                    tracing::warn!(
                        pool,
                        refusals = effect.refusals,
                        first = effect.refused.first().map(|it| it.detail.as_str()),
                        "steps of the external planner were refused"
                    );
                }
                if let Some(last) = &mut state.last_response {
                    last.effect = Some((self.timing.round(), effect));
                }
            }
            self.snapshot.set_external_planner(&pool, planner_state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_does_not_quote_an_invalid_response() {
        let parse =
            |body: &str| hayward_rm_scheduler_external_planner::parse_response(body.as_bytes(), 7);
        // Two invalid responses of each kind have the same text without the part of the planner.
        for (bodies, text) in [
            (["<1>", r#"{"12:00": 1}"#], "its response cannot be parsed"),
            (
                [r#"{"revision": 1}"#, r#"{"revision": 2}"#],
                "its response is for another revision",
            ),
            (
                [
                    r#"{"revision": 7, "format": "a"}"#,
                    r#"{"revision": 7, "format": "b: c"}"#,
                ],
                "its response has another format",
            ),
        ] {
            for body in bodies {
                let why = parse(body).unwrap_err();
                assert_eq!(without_planner_text(&why), text, "{why}");
                assert_ne!(why, text, "the operator gets more text");
            }
        }
    }
}
