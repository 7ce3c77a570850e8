//! Idle trees: trees in which no row is dirty and whose last result does not depend on time. After
//! the entitlement step, the steps of a round would repeat the last result of such a tree. They are
//! skipped, and the result is reused.
//!
//! A tree is never idle while work of its FIXED_SHARE or RESERVE classes waits, because allotments
//! span all trees. A step that depends on time, a budget or recent moves calls
//! [`RoundState::record_time_dependence`].

use std::sync::atomic::Ordering::Relaxed;

use super::{
    ClassState, RoundState,
    serve_order::{QueuedWork, to_serve_in_order},
};
use crate::{
    collections::bit_set::BitSet,
    ids::{Ix, PoolIx, TypedVec, WorkIx},
    input::snapshot::Policy,
    output::plan::Reason,
};

/// Result of the steps after the entitlement step in one tree.
#[derive(Default)]
pub(crate) struct TreeOutcome {
    /// Work with a wait reason, and some work that no longer has one.
    waiting: Vec<WorkIx>,
    /// Needy work for the next round.
    pub needy: BitSet<WorkIx>,
    /// True if the result stays the same while no row is dirty.
    is_stable: bool,
    /// True if this round reused the result.
    pub is_reused: bool,
}

/// Reason why each piece of work waits. It is not a field of the row, because writing a row marks
/// it dirty.
#[derive(Default)]
pub(crate) struct WaitReasons(TypedVec<WorkIx, Option<Reason>>);

impl RoundState<'_> {
    /// Returns the tree of the home pool of this work.
    pub fn tree_of(&self, work: WorkIx) -> Option<PoolIx> {
        self.home(work).map(|home| self.forest.root(home))
    }

    pub fn wait_reason(&self, work: WorkIx) -> Option<Reason> {
        let reason = self.derived.wait_reasons.0.get(work).copied().flatten();
        debug_assert!(reason.is_none() || self.tree_of(work).is_some());
        reason
    }

    pub fn set_wait_reason(&mut self, work: WorkIx, reason: Reason) {
        let Some(tree) = self.tree_of(work) else {
            return;
        };
        let reasons = &mut self.derived.wait_reasons.0;
        if reasons.len() <= work.index() {
            reasons.resize(self.work.len(), None);
        }
        if reasons[work].replace(reason).is_none() {
            self.outcomes[tree].waiting.push(work);
        }
    }

    /// Clears the wait reasons of all work in this tree.
    fn clear_wait_reasons(&mut self, tree: PoolIx) {
        let waiting = std::mem::take(&mut self.outcomes[tree].waiting);
        for work in &waiting {
            // Work that moved to another tree may already have a reason from there. Only dirty work
            // moves.
            if !self.work.is_dirty(*work) || self.tree_of(*work) == Some(tree) {
                self.derived.wait_reasons.0[*work] = None;
            }
        }
        self.outcomes[tree].waiting = waiting;
        self.outcomes[tree].waiting.clear();
    }

    /// Clears the reasons of work rows that were replaced or changed. Called once in a round.
    fn clear_touched_wait_reasons(&mut self) {
        for work in &self.index.touched {
            if let Some(reason) = self.derived.wait_reasons.0.get_mut(*work) {
                *reason = None;
            }
        }
    }

    /// Records that the result of this tree can change with time alone.
    pub fn record_time_dependence(&self) {
        self.depends_on_time.store(true, Relaxed);
    }

    pub fn has_time_dependence(&self) -> bool {
        self.depends_on_time.load(Relaxed)
    }

    /// Returns true if the tree is idle, so that its last result is reused. Called after the
    /// entitlement step.
    pub fn begin_tree(&mut self, tree: PoolIx) -> bool {
        let is_idle = self.outcomes[tree].is_stable && !self.is_dirty(tree);
        if self.forest.roots().first() == Some(&tree) {
            self.clear_touched_wait_reasons();
        }
        self.outcomes[tree].is_reused = is_idle;
        if !is_idle {
            self.clear_wait_reasons(tree);
            self.outcomes[tree].needy.clear();
            self.depends_on_time.store(false, Relaxed);
        }
        is_idle
    }

    /// Records whether the result of this tree stays the same while no row is dirty.
    pub fn end_tree(&mut self, tree: PoolIx) {
        let has_budget_stop = || {
            self.budget_stops
                .keys()
                .any(|work| self.tree_of(*work) == Some(tree))
        };
        let waits = |queued: &QueuedWork| {
            let work_state = &self.work[queued.work];
            queued.policy != Policy::FairShare
                && (work_state.process_count() == 0 || work_state.missing() > 0)
        };
        let is_fair_share =
            |class_state: &ClassState| class_state.class.policy == Policy::FairShare;
        let non_fair_work_waits = || {
            !self.classes.iter().all(is_fair_share)
                && to_serve_in_order(self, tree).iter().any(waits)
        };
        let is_stable = !self.has_time_dependence() && !has_budget_stop() && !non_fair_work_waits();
        self.outcomes[tree].is_stable = is_stable;
    }

    fn is_dirty(&self, tree: PoolIx) -> bool {
        let (index, forest) = (self.index, self.forest);
        let is_in_tree = |pool: Option<PoolIx>| pool.is_some_and(|pool| forest.root(pool) == tree);
        let departed = index.departed.iter();
        index.rebuilt
            || departed
                .map(|departed| self.classes[departed.class].pool)
                .any(is_in_tree)
            || index.left_pools.iter().any(|pool| is_in_tree(Some(*pool)))
            || self.work.dirty().any(|work| is_in_tree(self.home(work)))
            || self
                .nodes
                .dirty()
                .any(|node| is_in_tree(self.nodes[node].pool))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Plan, Planner as _, Rounds, SnapshotDelta,
        input::snapshot::{Policy, Pool},
        planner::FairShare,
        tests::fixture::{Fixture, terms, work_id},
    };

    /// Returns a fleet with two trees, `default` and `other`, that have more demand than space. Ids
    /// of work begin with the name of their tree.
    fn two_trees() -> Fixture {
        let mut fixture = Fixture::eager().nodes(&[4, 4]);
        fixture
            .snapshot
            .pools
            .insert("other".into(), Pool::default());
        fixture.node_in("other", "m0", 4);
        fixture.class("other", terms(Policy::FairShare, 10, 100), "other");
        for (number, user) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            fixture.job(&format!("default-{number}"), user, 3);
            fixture.job_in("other", &format!("other-{number}"), user, 3);
        }
        fixture
    }

    /// Decides a round and asserts that its plan equals that of a new planner.
    fn decide_round(rounds: &mut Rounds, fixture: &Fixture, delta: &SnapshotDelta) -> Plan {
        let decided = rounds.decide(&fixture.snapshot, delta);
        let plan = rounds.full_plan(decided);
        assert_eq!(plan, FairShare.schedule(&fixture.snapshot));
        plan
    }

    /// Returns for each tree whether the last round reused its result.
    fn reused_trees(rounds: &Rounds) -> Vec<bool> {
        let outcomes = rounds.tree_outcomes();
        outcomes.iter().map(|outcome| outcome.is_reused).collect()
    }

    #[test]
    fn an_idle_tree_keeps_its_result() {
        let mut fixture = two_trees();
        let mut rounds = Rounds::default();
        for _ in 0..6 {
            let plan = decide_round(&mut rounds, &fixture, &SnapshotDelta::everything());
            fixture.carry_out(&plan);
        }
        // A rebuild marks all rows dirty once.
        for _ in 0..2 {
            let plan = decide_round(&mut rounds, &fixture, &SnapshotDelta::default());
            assert!(plan.is_empty(), "{plan:?}");
            fixture.carry_out(&plan);
        }
        let plan = decide_round(&mut rounds, &fixture, &SnapshotDelta::default());
        assert_eq!(reused_trees(&rounds), [true, true]);
        assert!(plan.verdicts.values().any(|verdict| verdict.waits));
        fixture.carry_out(&plan);

        fixture.demand_mut("other-4").max_processes = 1;
        let delta = SnapshotDelta::for_work(&fixture.snapshot, [work_id("other-4")]);
        decide_round(&mut rounds, &fixture, &delta);
        assert_eq!(reused_trees(&rounds), [true, false]);
    }

    #[test]
    fn a_removed_tree_leaves_no_result() {
        let mut fixture = two_trees();
        // The node has memory for eight processes, but CPU for only two.
        let node = fixture.node("m0");
        (node.capacity.cpu_milli, node.capacity.memory_bytes) =
            (2_000, 8 * crate::tests::fixture::GIB);
        for number in 0..5 {
            let size = &mut fixture.demand_mut(&format!("other-{number}")).size;
            (size.cpu_milli, size.memory_bytes) = (1_000, crate::tests::fixture::GIB);
        }
        let mut rounds = Rounds::default();
        for _ in 0..4 {
            let plan = decide_round(&mut rounds, &fixture, &SnapshotDelta::everything());
            fixture.carry_out(&plan);
        }
        let needy = |id: &str| fixture.snapshot.carried.needy.contains(id);
        assert!(
            (0..5).any(|number| needy(&format!("other-{number}"))),
            "some work of the other tree is needy"
        );
        // Both trees become one, and most of the work is withdrawn.
        let other = fixture.snapshot.pools.get_mut("other").unwrap();
        other.parent = Some("default".into());
        fixture
            .snapshot
            .demand
            .retain(|id, _| id.as_str() == "default-0");
        fixture.snapshot.allocations.clear();
        decide_round(&mut rounds, &fixture, &SnapshotDelta::everything());
        decide_round(&mut rounds, &fixture, &SnapshotDelta::default());
    }

    #[test]
    fn a_tree_with_work_that_waits_for_budget_is_never_idle() {
        let mut fixture = Fixture::eager().nodes(&[4]);
        let settings = &mut fixture.snapshot.tunables.settings;
        settings.preemption_pool_percent_per_hour = Some(25);
        fixture.job("first", "a", 1);
        let mut rounds = Rounds::default();
        let plan = decide_round(&mut rounds, &fixture, &SnapshotDelta::everything());
        fixture.carry_out(&plan);
        fixture.job("second", "b", 1);
        for _ in 0..4 {
            let plan = decide_round(&mut rounds, &fixture, &SnapshotDelta::everything());
            fixture.carry_out(&plan);
        }
        for _ in 0..3 {
            let plan = decide_round(&mut rounds, &fixture, &SnapshotDelta::default());
            assert_eq!(reused_trees(&rounds), [false]);
            fixture.carry_out(&plan);
        }
        // An hour later there is budget again, although no delta is reported.
        fixture.snapshot.now = fixture.snapshot.now.plus_ms(2 * 3_600_000);
        fixture.snapshot.preempted_quanta.clear();
        assert!(!decide_round(&mut rounds, &fixture, &SnapshotDelta::default()).is_empty());
    }
}
