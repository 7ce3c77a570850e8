//! Trees at rest: nothing in them is stirred, and what was found there last rests on nothing that
//! passes by itself. The steps that look at everybody who waits would find the same again, so they
//! are left out, and what they said stays. So a round costs what is new, however many wait.
//!
//! Work of FIXED_SHARE and RESERVE classes can depend on other trees, for an allotment is one over
//! all pools: where such work waits, its tree is not at rest. Time, budgets and who was hit lately
//! pass by themselves; a step that looks at them where it matters says so with [`Books::passes`].

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    collections::bit_set::BitSet,
    input::snapshot::Policy,
    output::plan::Reason,
    placement::serve_order::lacking_in_order,
    state::{ClassState, RoundState},
};

/// What the steps after counting found in one tree, beside rows.
#[derive(Default)]
pub(crate) struct TreeOutcome {
    /// Work of which it is said in [`Waits`] why it waits, and some of which it was.
    waiting: Vec<usize>,
    /// For the next round.
    pub needy: BitSet,
    /// It is the same again, as long as nothing is stirred.
    is_stable: bool,
    /// This round left it as it was.
    pub is_reused: bool,
}

/// By work: why it waits, as the step said that left it waiting. It is no part of the rows, or work
/// that waits would be stirred in every round.
#[derive(Default)]
pub(crate) struct WaitReasons(Vec<Option<Reason>>);

impl RoundState<'_> {
    /// The tree this work belongs to.
    pub fn tree_of(&self, work: usize) -> Option<usize> {
        self.home(work).map(|home| self.forest.root(home))
    }

    pub fn wait_reason(&self, work: usize) -> Option<Reason> {
        let known = self.derived.wait_reasons.0.get(work).copied().flatten();
        debug_assert!(known.is_none() || self.tree_of(work).is_some());
        known
    }

    pub fn set_wait_reason(&mut self, work: usize, reason: Reason) {
        let Some(tree) = self.tree_of(work) else {
            return;
        };
        let waits = &mut self.derived.wait_reasons.0;
        if waits.len() <= work {
            waits.resize(self.work.len(), None);
        }
        if waits[work].replace(reason).is_none() {
            self.outcomes[tree].waiting.push(work);
        }
    }

    /// Of no work of this tree it is said any more.
    fn clear_wait_reasons(&mut self, tree: usize) {
        let waiting = std::mem::take(&mut self.outcomes[tree].waiting);
        for at in &waiting {
            // Who went to another tree may have been told there already; only who is stirred did.
            if !self.work.is_dirty(*at) || self.tree_of(*at) == Some(tree) {
                self.derived.wait_reasons.0[*at] = None;
            }
        }
        self.outcomes[tree].waiting = waiting;
        self.outcomes[tree].waiting.clear();
    }

    /// Other work may have the number by now, or it belongs to another tree. Once in a round.
    fn clear_touched_wait_reasons(&mut self) {
        for at in &self.index.touched {
            if let Some(wait) = self.derived.wait_reasons.0.get_mut(*at) {
                *wait = None;
            }
        }
    }

    /// What was just looked at can be otherwise in the next round, without any news.
    pub fn note_time_dependence(&self) {
        self.depends_on_time.store(true, Relaxed);
    }

    pub fn has_time_dependence(&self) -> bool {
        self.depends_on_time.load(Relaxed)
    }

    /// Is all in this tree as it was, and stays so? To be asked after counting.
    pub fn begin_tree(&mut self, tree: usize) -> bool {
        let rests = self.outcomes[tree].is_stable && !self.is_dirty(tree);
        if self.forest.roots().first() == Some(&tree) {
            self.clear_touched_wait_reasons();
        }
        self.outcomes[tree].is_reused = rests;
        if !rests {
            self.clear_wait_reasons(tree);
            self.outcomes[tree].needy.clear();
            self.depends_on_time.store(false, Relaxed);
        }
        rests
    }

    pub fn end_tree(&mut self, tree: usize) {
        let braked = || {
            self.budget_stops
                .keys()
                .any(|at| self.tree_of(*at) == Some(tree))
        };
        let waits = |(policy, at): &(Policy, usize)| {
            let work = &self.work[*at];
            *policy != Policy::FairShare && (work.has() == 0 || work.missing() > 0)
        };
        let is_fair = |class_state: &ClassState| class_state.class.policy == Policy::FairShare;
        let others_wait =
            || !self.classes.iter().all(is_fair) && lacking_in_order(self, tree).iter().any(waits);
        let lasts = !self.has_time_dependence() && !braked() && !others_wait();
        self.outcomes[tree].is_stable = lasts;
    }

    fn is_dirty(&self, tree: usize) -> bool {
        let (index, forest) = (self.index, self.forest);
        let is_here = |pool: Option<usize>| pool.is_some_and(|pool| forest.root(pool) == tree);
        let left = index.departed.iter();
        index.rebuilt
            || left.map(|it| self.classes[it.class].pool).any(is_here)
            || index.left_pools.iter().any(|pool| is_here(Some(*pool)))
            || self.work.dirty_rows().any(|at| is_here(self.home(at)))
            || self
                .nodes
                .dirty_rows()
                .any(|at| is_here(self.nodes[at].pool))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Plan, Planner as _, Rounds, SnapshotDelta,
        input::snapshot::{Policy, Pool},
        planner::FairShare,
        tests::fixture::{Fixture, work_id},
    };

    /// Two trees in which more is asked for than there is, by name of the pool.
    fn two_trees() -> Fixture {
        let mut fixture = Fixture::eager().nodes(&[4, 4]);
        fixture
            .snapshot
            .pools
            .insert("other".into(), Pool::default());
        fixture.node_in("other", "m0", 4);
        fixture.class("apart", (Policy::FairShare, 10, 100), "other");
        for (at, user) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            fixture.job(&format!("here{at}"), user, 3);
            fixture.job_in("apart", &format!("there{at}"), user, 3);
        }
        fixture
    }

    fn round(rounds: &mut Rounds, fixture: &Fixture, delta: &SnapshotDelta) -> Plan {
        let decided = rounds.decide(&fixture.snapshot, delta);
        let plan = rounds.full_plan(decided);
        assert_eq!(plan, FairShare.schedule(&fixture.snapshot));
        plan
    }

    fn rested(rounds: &Rounds) -> Vec<bool> {
        let outcomes = rounds.outcomes();
        outcomes.iter().map(|outcome| outcome.is_reused).collect()
    }

    #[test]
    fn who_waits_in_a_tree_without_news_is_left_alone() {
        let mut fixture = two_trees();
        let mut rounds = Rounds::default();
        for _ in 0..6 {
            let plan = round(&mut rounds, &fixture, &SnapshotDelta::everything());
            fixture.carry_out(&plan);
        }
        // What was read anew is looked at once more.
        for _ in 0..2 {
            let plan = round(&mut rounds, &fixture, &SnapshotDelta::default());
            assert!(plan.is_empty(), "{plan:?}");
            fixture.carry_out(&plan);
        }
        let plan = round(&mut rounds, &fixture, &SnapshotDelta::default());
        assert_eq!(rested(&rounds), [true, true]);
        assert!(plan.verdicts.values().any(|verdict| verdict.waits));
        fixture.carry_out(&plan);

        fixture.of("there4").max_processes = 1;
        let delta = SnapshotDelta::of_work(&fixture.snapshot, [work_id("there4")]);
        round(&mut rounds, &fixture, &delta);
        assert_eq!(rested(&rounds), [true, false]);
    }

    #[test]
    fn of_a_tree_that_is_none_any_more_nothing_stays() {
        let mut fixture = two_trees();
        let node = fixture.node("m0");
        (node.capacity.cpu_milli, node.capacity.memory_bytes) =
            (2_000, 8 * crate::tests::fixture::GIB);
        for at in 0..5 {
            let size = &mut fixture.of(&format!("there{at}")).size;
            (size.cpu_milli, size.memory_bytes) = (1_000, crate::tests::fixture::GIB);
        }
        let mut rounds = Rounds::default();
        for _ in 0..4 {
            let plan = round(&mut rounds, &fixture, &SnapshotDelta::everything());
            fixture.carry_out(&plan);
        }
        let needy = |id: &str| fixture.snapshot.carried.needy.contains(id);
        assert!(
            (0..5).any(|at| needy(&format!("there{at}"))),
            "some are needy there"
        );
        // Both trees become one, and most of the work goes, with its numbers.
        let other = fixture.snapshot.pools.get_mut("other").unwrap();
        other.parent = Some("default".into());
        fixture
            .snapshot
            .demand
            .retain(|id, _| id.as_str() == "here0");
        fixture.snapshot.allocations.clear();
        round(&mut rounds, &fixture, &SnapshotDelta::everything());
        round(&mut rounds, &fixture, &SnapshotDelta::default());
    }

    #[test]
    fn a_tree_whose_work_waits_for_a_budget_does_not_rest() {
        let mut fixture = Fixture::eager().nodes(&[4]);
        let settings = &mut fixture.snapshot.tunables.settings;
        settings.preemption_pool_percent_per_hour = Some(25);
        fixture.job("first", "a", 1);
        let mut rounds = Rounds::default();
        let plan = round(&mut rounds, &fixture, &SnapshotDelta::everything());
        fixture.carry_out(&plan);
        fixture.job("second", "b", 1);
        for _ in 0..4 {
            let plan = round(&mut rounds, &fixture, &SnapshotDelta::everything());
            fixture.carry_out(&plan);
        }
        for _ in 0..3 {
            let plan = round(&mut rounds, &fixture, &SnapshotDelta::default());
            assert_eq!(rested(&rounds), [false]);
            fixture.carry_out(&plan);
        }
        // An hour later there is budget again, and nobody had to say so.
        fixture.snapshot.now = fixture.snapshot.now.plus_ms(2 * 3_600_000);
        fixture.snapshot.taken_back.clear();
        assert!(!round(&mut rounds, &fixture, &SnapshotDelta::default()).is_empty());
    }
}
