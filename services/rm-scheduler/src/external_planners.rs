//! External planners: when each is asked, and the results of its answers.
//!
//! A round never waits for an answer. After its commit it sends a question about what the pool
//! lacks. The answer goes into the snapshot, and the next round takes the steps of it that are
//! still valid. So rounds stay pure and can be replayed without the program. A pool has one open
//! question at a time. After failures it is asked at growing intervals.

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

/// Between two questions of a pool.
const PAUSE_MS: u64 = 50;
/// Until the same question is asked again: a planner may use other inputs too.
const AGAIN_MS: u64 = 5_000;
/// After the first failure; doubled with each further one, up to the maximum.
const BACK_OFF_MS: u64 = 500;
const MAX_BACK_OFF_MS: u64 = 60_000;
/// Added to its timeout: then the client is not waited for either.
const GRACE_MS: u64 = 5_000;

#[derive(Default)]
pub struct ExternalPlanners {
    by_pool: BTreeMap<String, PlannerState>,
    /// Pools with an answer in this round.
    answered: BTreeSet<String>,
    /// Limits how often texts of external planners change.
    pub(crate) words: ChangeRate,
}

/// State of one external planner.
struct PlannerState {
    planner: PoolPlanner,
    /// The last question and its time.
    asked: Option<(Arc<PlannerRequest>, u64)>,
    /// Revision of the open question, and the time until which it is waited for.
    on_its_way: Option<(u64, u64)>,
    /// Time of the next round for this planner, if nothing changes before.
    due_ms: Option<u64>,
    /// Failures in a row.
    failures: u64,
    failed: Option<(Timestamp, String)>,
    /// No question before this time.
    retry_ms: u64,
    last: Option<LastAnswer>,
}

/// The last answer and its result.
struct LastAnswer {
    at: Timestamp,
    took_ms: u64,
    revision: u64,
    /// The round that used it, and the result.
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

    /// Earliest time of any question.
    fn ready_ms(&self) -> u64 {
        let after = self.asked.as_ref().map_or(0, |(_, at)| at + PAUSE_MS);
        after.max(self.retry_ms)
    }

    /// Earliest time of this question.
    fn ready_for_ms(&self, ask: &PlannerRequest) -> u64 {
        let before = self.asked.as_ref().filter(|_| self.failures == 0);
        let same = before.filter(|(before, _)| before.has_same_content(ask));
        same.map_or(0, |(_, at)| at + AGAIN_MS).max(self.ready_ms())
    }

    /// The next question, if it may be sent now. It is built only then, because of a large pool it
    /// is a large copy.
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
    /// Earliest time of a round for any planner.
    pub fn due_ms(&self) -> Option<u64> {
        let pools = self.by_pool.values().filter_map(|it| it.due_ms);
        pools.chain(self.words.due_ms()).min()
    }

    /// Takes over the planners of the policy. Returns the pools with a new one.
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

/// Milliseconds until the next attempt after this many failures in a row.
fn back_off_ms(failures: u64) -> u64 {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_u64.checked_shl(doublings.min(32)).unwrap_or(u64::MAX);
    BACK_OFF_MS.saturating_mul(factor).min(MAX_BACK_OFF_MS)
}

/// The text without the part of the program, which follows a colon. That part may differ each time,
/// and would change the verdict of all waiting work.
fn plain(why: &str) -> &str {
    why.split_once(": ").map_or(why, |(plain, _)| plain)
}

impl Ledger {
    /// Follows a policy change. The answers of another program are dropped.
    pub(crate) fn follow_planners(&mut self) {
        let fresh = self.external_planners.follow(&self.policy.rules().planners);
        for pool in fresh {
            self.snapshot.set_outside(&pool, Outside::default());
        }
    }

    /// Returns whether it is time for a round, and clears that time.
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

    /// Applies an answer or a failure.
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
        // The question was given up, or another program is asked now.
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
    /// so questions contain the wanted successors too.
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
                // The decisions of this round become part of the next question.
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

    /// True if the pool of this work is planned outside and this round used no answer for it.
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

    /// Pools that a plan changes.
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

    /// Drops notes about work that lacks nothing any more.
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

    /// Stores the result of each answer. An answer is used once.
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
    fn the_pause_doubles_with_each_failure_up_to_a_maximum() {
        let waits: Vec<u64> = [1, 2, 3, 7, 8, 100, u64::MAX].map(back_off_ms).into();
        assert_eq!(waits, [500, 1_000, 2_000, 32_000, 60_000, 60_000, 60_000]);
    }

    #[test]
    fn verdicts_do_not_quote_the_bytes_of_a_bad_answer() {
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
    fn a_question_is_built_only_when_it_may_be_sent() {
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
        // Within the pause no question is built, and a pool that lacks nothing requests no round.
        assert_eq!(at(&mut known, 1_049, true, "b"), (false, 0, Some(1_050)));
        assert_eq!(at(&mut known, 1_049, false, "b"), (false, 0, None));
        // The same question is sent later, another one at once.
        assert_eq!(at(&mut known, 1_050, true, "a"), (false, 1, Some(6_000)));
        assert_eq!(at(&mut known, 1_050, true, "b"), (true, 1, Some(6_060)));
        // After failures there is a longer pause.
        (known.failures, known.retry_ms) = (3, 9_000);
        assert_eq!(at(&mut known, 8_999, true, "c"), (false, 0, Some(9_000)));
        assert_eq!(at(&mut known, 9_000, true, "b"), (true, 1, Some(14_010)));
    }

    #[test]
    fn a_new_address_resets_the_state_of_a_planner() {
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
