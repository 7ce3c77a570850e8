//! External planners: when each one gets a question, and how its answer is applied.
//!
//! A round never waits for an answer. After its commit it sends a question about the work that
//! lacks processes in the pool. The answer goes into the snapshot. The next round takes those steps
//! of the answer that are still valid. Rounds therefore stay pure, and they can be replayed without
//! the external planner. A pool has one open question at a time. After failures the interval
//! between questions grows.

mod client;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_domain::Plan;
use hayward_rm_scheduler_domain::plan::outside::Taken;
use hayward_rm_scheduler_domain::snapshot::outside::Outside;
use hayward_rm_scheduler_external_planner::{
    PlannerRequest, Trees, has_missing_work, relevant_notes,
};
use hayward_vocabulary::WorkId;

use crate::command::PlannerOutcome;
use crate::store::Rows;
use crate::working_set::Ledger;
use crate::working_set::external_planners::{LastAnswer, PAUSE_MS, back_off_ms};

pub use client::start;
pub use view::planners as shown;

/// Returns the text before the first colon. The external planner writes the text after it. That
/// text may differ each time, and it would change the verdict of all waiting work.
fn plain(why: &str) -> &str {
    why.split_once(": ").map_or(why, |(plain, _)| plain)
}

impl Ledger {
    /// Returns true once when a round for an external planner is due.
    pub(crate) fn planners_are_due(&mut self, now_ms: u64) -> bool {
        let mut due = self.external_planners.words.are_due(now_ms);
        for known in self.external_planners.by_pool.values_mut() {
            if known.due_ms.is_some_and(|at| at <= now_ms) {
                known.due_ms = None;
                due = true;
            }
        }
        due
    }

    /// Applies the answer of an external planner, or its failure.
    pub(crate) fn apply_planner_outcome(&mut self, answered: PlannerOutcome, moment: &Moment) {
        let PlannerOutcome {
            pool,
            revision,
            took_ms,
            outcome,
        } = answered;
        let Some(known) = self.external_planners.by_pool.get_mut(&pool) else {
            return;
        };
        // The question has expired, or its pool now has another planner.
        if known.on_its_way.is_none_or(|(open, _)| open != revision) {
            return;
        }
        known.on_its_way = None;
        known.due_ms = None;
        let mut outside = self.snapshot.outside.get(&pool).cloned();
        let outside = outside.get_or_insert_default();
        match outcome {
            Ok(answer) => {
                known.failures = 0;
                known.retry_ms = 0;
                known.last = Some(LastAnswer {
                    at: moment.now,
                    took_ms,
                    revision,
                    taken: None,
                });
                outside.answer = Some(answer);
                outside.silence = None;
                self.timing.request_round();
            }
            Err(why) => {
                known.failures = known.failures.saturating_add(1);
                known.retry_ms = moment.monotonic_ms + back_off_ms(known.failures);
                known.due_ms = Some(known.retry_ms);
                known.failed = Some((moment.now, why.clone()));
                if known.failures == 1 {
                    tracing::warn!(pool, why, "the external planner did not answer");
                }
                let why = plain(&why).to_owned();
                self.timing
                    .request_round_if(outside.silence.as_ref() != Some(&why));
                outside.silence = Some(why);
            }
        }
        let outside = std::mem::take(outside);
        self.snapshot.set_outside(&pool, outside);
    }

    /// Stores the results of answers, and sends questions. The snapshot is still that of the round,
    /// so the questions also contain the wanted successors.
    pub(crate) fn update_external_planners(
        &mut self,
        plan: &mut Plan,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.external_planners.by_pool.is_empty() {
            return;
        }
        self.external_planners.answered = plan.outside.keys().cloned().collect();
        let trees = Trees::new(&self.snapshot);
        let busy = self.pools_changed_by(plan, &trees);
        self.store_results(std::mem::take(&mut plan.outside));
        self.drop_stale_answers(&trees);
        // Without all neighbours it is unknown what a pool lacks.
        if self.timing.stale_neighbour().is_some() {
            return;
        }
        let (now_ms, round) = (moment.monotonic_ms, self.timing.round());
        let mut questions = Vec::new();
        for (pool, known) in &mut self.external_planners.by_pool {
            if let Some((_, until)) = known.on_its_way.filter(|(_, until)| now_ms < *until) {
                known.due_ms = Some(until);
                continue;
            }
            if busy.contains(pool) {
                // The next question has to include the decisions of this round.
                known.due_ms = Some(now_ms + PAUSE_MS);
                continue;
            }
            let snapshot = &*self.snapshot;
            let lacks = || has_missing_work(snapshot, &trees, pool);
            let ask = || PlannerRequest::new(snapshot, &trees, pool, round);
            questions.extend(known.question(now_ms, lacks, ask));
        }
        if questions.is_empty() {
            return;
        }
        let context = self.context.clone();
        batch.once_committed(move |_| {
            for question in questions {
                context.questions.send(question);
            }
        });
    }

    /// Returns true if an external planner plans the pool of this work and this round used no
    /// answer for it.
    pub(crate) fn awaits_external_planner(&self, work: &WorkId) -> bool {
        if self.external_planners.by_pool.is_empty() {
            return false;
        }
        let snapshot = &*self.snapshot;
        let demand = snapshot.demand.get(work);
        let trees = Trees::new(snapshot);
        let pool = demand.and_then(|demand| trees.of_work(snapshot, demand));
        pool.is_some_and(|pool| !self.external_planners.answered.contains(pool))
    }

    /// Returns the pools that a plan changes.
    fn pools_changed_by(&self, plan: &Plan, trees: &Trees) -> BTreeSet<String> {
        let (snapshot, mut pools) = (&*self.snapshot, BTreeSet::new());
        let granted = plan.grants.iter().filter_map(|grant| {
            let class = snapshot.classes.get(&*grant.class)?;
            trees.of_pool(&class.pool)
        });
        let leaving = plan.vacates.iter().filter_map(|order| {
            let held = snapshot.allocations.get(&order.allocation)?;
            trees.of_held(snapshot, held)
        });
        pools.extend(granted.chain(leaving).map(str::to_owned));
        pools
    }

    /// Drops the notes of answers about work that no longer lacks anything.
    fn drop_stale_answers(&mut self, trees: &Trees) {
        let snapshot = &*self.snapshot;
        let shorter = snapshot.outside.iter().filter_map(|(pool, known)| {
            let last = known.heard.as_ref()?;
            let some = !last.notes.is_empty() || !last.refused.is_empty();
            let left = some.then(|| relevant_notes(snapshot, trees, pool, last))?;
            let known = || Outside {
                heard: Some(left.clone()),
                ..known.clone()
            };
            (left != *last).then(|| (pool.clone(), known()))
        });
        for (pool, known) in shorter.collect::<Vec<_>>() {
            self.snapshot.set_outside(&pool, known);
        }
    }

    /// Stores the result of each answer, and removes the answer, because it is used once.
    fn store_results(&mut self, mut taken: BTreeMap<String, Taken>) {
        let answered: Vec<String> = {
            let pools = self.snapshot.outside.iter();
            let answered = pools.filter(|(_, it)| it.answer.is_some());
            answered.map(|(pool, _)| pool.clone()).collect()
        };
        for pool in answered {
            let mut outside = self.snapshot.outside.get(&pool).cloned();
            let outside = outside.get_or_insert_default();
            outside.answer = None;
            let known = self.external_planners.by_pool.get_mut(&pool);
            if let (Some(known), Some(taken)) = (known, taken.remove(&pool)) {
                outside.heard = Some(taken.heard.clone());
                if taken.refusals > 0 {
                    tracing::warn!(
                        pool,
                        refusals = taken.refusals,
                        first = taken.refused.first().map(|it| it.detail.as_str()),
                        "steps of the external planner were refused"
                    );
                }
                if let Some(last) = &mut known.last {
                    last.taken = Some((self.timing.round(), taken));
                }
            }
            let outside = std::mem::take(outside);
            self.snapshot.set_outside(&pool, outside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_do_not_quote_the_bytes_of_a_bad_answer() {
        let read =
            |body: &str| hayward_rm_scheduler_external_planner::parse_response(body.as_bytes(), 7);
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
                let why = read(body).unwrap_err();
                assert_eq!(plain(&why), text, "{why}");
                assert_ne!(why, text, "the operator is told more");
            }
        }
    }
}
