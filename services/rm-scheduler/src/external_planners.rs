//! Planners outside while the fleet runs (D7): when each is asked, and what its answers came to.
//!
//! A round never waits for one. It asks at its end, once it is committed, what the pool lacks; the
//! answer comes like any news, goes into the snapshot, and the next round takes of it what still
//! holds. So rounds stay pure and are replayed without the program. One question of a pool is on
//! its way at a time. Who fails is asked again later and later.

mod change_rate;
mod client;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::policy::PoolPlanner;
use hayward_rm_scheduler_domain::Plan;
use hayward_rm_scheduler_domain::plan::outside::Taken;
use hayward_rm_scheduler_domain::snapshot::outside::Outside;
use hayward_rm_scheduler_external_planner::{
    PlannerRequest, Trees, has_missing_work, relevant_notes,
};
use hayward_vocabulary::{Timestamp, WorkId};

use crate::command::PlannerOutcome;
use crate::store::Rows;
use crate::working_set::Ledger;

use change_rate::ChangeRate;
pub use client::{Question, Questions, start};
pub use view::planners as shown;

/// Between two questions of a pool that changes.
const PAUSE_MS: u64 = 50;
/// Until the same question is asked again: a planner may look at more than it is told.
const AGAIN_MS: u64 = 5_000;
/// From a failure to the next attempt; doubled with each, up to the most.
const BACK_OFF_MS: u64 = 500;
const MOST_BACK_OFF_MS: u64 = 60_000;
/// On top of its timeout: then whoever carries the question is not waited for either.
const GRACE_MS: u64 = 5_000;

#[derive(Default)]
pub struct ExternalPlanners {
    by_pool: BTreeMap<String, PlannerState>,
    /// Those of which this round used an answer.
    answered: BTreeSet<String>,
    /// How often what they say has changed lately.
    pub(crate) words: ChangeRate,
}

/// One of them.
struct PlannerState {
    planner: PoolPlanner,
    /// The last question, which whoever carries it shares, and when it was asked.
    asked: Option<(Arc<PlannerRequest>, u64)>,
    /// What is on its way, and until when it is waited for.
    on_its_way: Option<(u64, u64)>,
    /// When to look again though there is no news.
    due_ms: Option<u64>,
    /// In a row.
    failures: u64,
    failed: Option<(Timestamp, String)>,
    /// No question before this.
    retry_ms: u64,
    last: Option<LastAnswer>,
}

/// The last answer, and what came of it.
struct LastAnswer {
    at: Timestamp,
    took_ms: u64,
    revision: u64,
    /// With the round that used it.
    taken: Option<(u64, Taken)>,
}

impl PlannerState {
    fn new(planner: PoolPlanner) -> Self {
        Self {
            planner,
            asked: None,
            on_its_way: None,
            due_ms: None,
            failures: 0,
            failed: None,
            retry_ms: 0,
            last: None,
        }
    }

    /// When anything may be asked.
    fn ready_ms(&self) -> u64 {
        let after = self.asked.as_ref().map_or(0, |(_, at)| at + PAUSE_MS);
        after.max(self.retry_ms)
    }

    /// When this may be asked.
    fn ready_for_ms(&self, ask: &PlannerRequest) -> u64 {
        let before = self.asked.as_ref().filter(|_| self.failures == 0);
        let same = before.filter(|(before, _)| before.has_same_content(ask));
        same.map_or(0, |(_, at)| at + AGAIN_MS).max(self.ready_ms())
    }

    /// What is to be asked now, if anything. It is not put together while it could not be asked:
    /// of a large pool that is much to copy.
    fn question(
        &mut self,
        now_ms: u64,
        lacks: impl FnOnce() -> bool,
        ask: impl FnOnce() -> Option<PlannerRequest>,
    ) -> Option<Question> {
        let ready_ms = self.ready_ms();
        if now_ms < ready_ms {
            self.due_ms = lacks().then_some(ready_ms);
            return None;
        }
        let Some(ask) = ask() else {
            self.due_ms = None;
            return None;
        };
        let ready_ms = self.ready_for_ms(&ask);
        if now_ms < ready_ms {
            self.due_ms = Some(ready_ms);
            return None;
        }
        let until = now_ms + self.planner.timeout_ms + GRACE_MS;
        self.on_its_way = Some((ask.revision, until));
        self.due_ms = Some(until);
        let ask = Arc::new(ask);
        self.asked = Some((ask.clone(), now_ms));
        Some(Question {
            planner: self.planner.clone(),
            ask,
        })
    }
}

impl ExternalPlanners {
    /// When a round is to be taken though there is no news.
    pub fn due_ms(&self) -> Option<u64> {
        let pools = self.by_pool.values().filter_map(|it| it.due_ms);
        pools.chain(self.words.due_ms()).min()
    }

    /// Takes over what the policy says; gives the pools of which nothing is known any more.
    fn follow(&mut self, wanted: &BTreeMap<String, PoolPlanner>) -> Vec<String> {
        self.by_pool.retain(|pool, _| wanted.contains_key(pool));
        let mut fresh = Vec::new();
        for (pool, planner) in wanted {
            let known = self.by_pool.get(pool);
            if known.is_none_or(|known| known.planner != *planner) {
                self.by_pool
                    .insert(pool.clone(), PlannerState::new(planner.clone()));
                fresh.push(pool.clone());
            }
        }
        fresh
    }
}

/// Milliseconds until the next attempt after so many failures in a row.
fn back_off_ms(failures: u64) -> u64 {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_u64.checked_shl(doublings.min(32)).unwrap_or(u64::MAX);
    BACK_OFF_MS.saturating_mul(factor).min(MOST_BACK_OFF_MS)
}

/// Without what the program itself says, which comes after a colon: it may say something else each
/// time, and all who wait would be told each time.
fn plain(why: &str) -> &str {
    why.split_once(": ").map_or(why, |(plain, _)| plain)
}

impl Ledger {
    /// The policy has changed. What another program said is forgotten.
    pub(crate) fn follow_planners(&mut self) {
        let fresh = self.external_planners.follow(&self.policy.rules().planners);
        for pool in fresh {
            self.snapshot.set_outside(&pool, Outside::default());
        }
    }

    /// It is time to ask somebody, which a round does.
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

    /// An answer came, or none.
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
        // Meanwhile it was given up, or another program is asked.
        if known.on_its_way.is_none_or(|(asked, _)| asked != revision) {
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
                    tracing::warn!(pool, why, "the planner outside did not answer");
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

    /// Keeps what a round made of answers, and asks for what is lacking. The snapshot is still as
    /// the round saw it, so places that are looked for are asked for, too.
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
        // While somebody is not heard, nobody knows what is lacking.
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
                // What was decided comes first, and is part of the next question.
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

    /// Its pool is planned outside, and nothing was said of it in this round: who looks for a place
    /// for it has not looked in vain yet.
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

    /// Pools in which this plan changes anything.
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

    /// What was said of work that lacks nothing any more is not kept for another time.
    fn drop_stale_answers(&mut self, trees: &Trees) {
        let snapshot = &*self.snapshot;
        let shorter = snapshot.outside.iter().filter_map(|(pool, known)| {
            let heard = known.heard.as_ref()?;
            let some = !heard.notes.is_empty() || !heard.refused.is_empty();
            let left = some.then(|| relevant_notes(snapshot, trees, pool, heard))?;
            let known = || Outside {
                heard: Some(left.clone()),
                ..known.clone()
            };
            (left != *heard).then(|| (pool.clone(), known()))
        });
        for (pool, known) in shorter.collect::<Vec<_>>() {
            self.snapshot.set_outside(&pool, known);
        }
    }

    /// An answer is used once, whatever came of it.
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
                        "steps of the planner outside were refused"
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
    fn who_fails_is_asked_later_and_later() {
        let waits: Vec<u64> = [1, 2, 3, 7, 8, 100, u64::MAX].map(back_off_ms).into();
        assert_eq!(waits, [500, 1_000, 2_000, 32_000, 60_000, 60_000, 60_000]);
    }

    #[test]
    fn who_waits_is_told_nothing_of_the_bytes_of_a_bad_answer() {
        let read =
            |body: &str| hayward_rm_scheduler_external_planner::parse_response(body.as_bytes(), 7);
        for (bodies, told) in [
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
                assert_eq!(plain(&why), told, "{why}");
                assert_ne!(why, told, "the operator is told more");
            }
        }
    }

    pub(super) fn question() -> PlannerRequest {
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
    fn a_question_is_put_together_only_when_it_may_be_asked() {
        let mut known = PlannerState::new(PoolPlanner {
            url: "http://127.0.0.1".to_owned(),
            timeout_ms: 10,
        });
        let made = std::cell::Cell::new(0);
        let at = |known: &mut PlannerState, now_ms, lacks: bool, pool: &str| {
            let ask = || {
                made.set(made.get() + 1);
                let pool = pool.to_owned();
                lacks.then(|| PlannerRequest { pool, ..question() })
            };
            let asked = known.question(now_ms, || lacks, ask).is_some();
            (asked, made.take(), known.due_ms)
        };
        assert_eq!(at(&mut known, 1_000, false, "a"), (false, 1, None));
        assert_eq!(at(&mut known, 1_000, true, "a"), (true, 1, Some(6_010)));
        // Within the pause nothing is put together, and who lacks nothing wakes nobody.
        assert_eq!(at(&mut known, 1_049, true, "b"), (false, 0, Some(1_050)));
        assert_eq!(at(&mut known, 1_049, false, "b"), (false, 0, None));
        // The same again later, another one at once.
        assert_eq!(at(&mut known, 1_050, true, "a"), (false, 1, Some(6_000)));
        assert_eq!(at(&mut known, 1_050, true, "b"), (true, 1, Some(6_060)));
        // Nor while it is left alone after failures.
        (known.failures, known.retry_ms) = (3, 9_000);
        assert_eq!(at(&mut known, 8_999, true, "c"), (false, 0, Some(9_000)));
        assert_eq!(at(&mut known, 9_000, true, "b"), (true, 1, Some(14_010)));
    }

    #[test]
    fn another_address_is_another_planner() {
        let planner = |url: &str| PoolPlanner {
            url: url.to_owned(),
            timeout_ms: 10,
        };
        let mut planners = ExternalPlanners::default();
        let pool = |url| BTreeMap::from([("batch".to_owned(), planner(url))]);
        assert_eq!(planners.follow(&pool("http://a")), ["batch"]);
        planners.by_pool.get_mut("batch").unwrap().failures = 3;
        assert!(planners.follow(&pool("http://a")).is_empty());
        assert_eq!(planners.by_pool["batch"].failures, 3);
        assert_eq!(planners.follow(&pool("http://b")), ["batch"]);
        assert_eq!(planners.by_pool["batch"].failures, 0);
        planners.follow(&BTreeMap::new());
        assert!(planners.by_pool.is_empty());
    }
}
