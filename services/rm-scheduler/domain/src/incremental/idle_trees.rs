//! Trees at rest: nothing in them is stirred, and what was found there last rests on nothing that
//! passes by itself. The steps that look at everybody who waits would find the same again, so they
//! are left out, and what they said stays. So a round costs what is new, however many wait.
//!
//! Work of FIXED_SHARE and RESERVE classes can depend on other trees, for an allotment is one over
//! all pools: where such work waits, its tree is not at rest. Time, budgets and who was hit lately
//! pass by themselves; a step that looks at them where it matters says so with [`Books::passes`].

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    collections::bit_set::Bits,
    input::snapshot::Policy,
    output::plan::Reason,
    placement::serve_order::lacking_in_turn,
    state::{Books, ClassBook},
};

/// What the steps after counting found in one tree, beside rows.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Work of which it is said in [`Waits`] why it waits, and some of which it was.
    waiting: Vec<usize>,
    /// For the next round.
    pub needy: Bits,
    /// It is the same again, as long as nothing is stirred.
    lasts: bool,
    /// This round left it as it was.
    pub is_kept: bool,
}

/// By work: why it waits, as the step said that left it waiting. It is no part of the rows, or work
/// that waits would be stirred in every round.
#[derive(Default)]
pub(crate) struct Waits(Vec<Option<Reason>>);

impl Books<'_> {
    /// The tree this work belongs to.
    pub fn tree_of(&self, request: usize) -> Option<usize> {
        self.home(request).map(|home| self.forest.root(home))
    }

    pub fn wait_of(&self, request: usize) -> Option<Reason> {
        let known = self.sets.waits.0.get(request).copied().flatten();
        debug_assert!(known.is_none() || self.tree_of(request).is_some());
        known
    }

    pub fn note_wait(&mut self, request: usize, reason: Reason) {
        let Some(tree) = self.tree_of(request) else {
            return;
        };
        let waits = &mut self.sets.waits.0;
        if waits.len() <= request {
            waits.resize(self.requests.len(), None);
        }
        if waits[request].replace(reason).is_none() {
            self.outcomes[tree].waiting.push(request);
        }
    }

    /// Of no work of this tree it is said any more.
    fn forget_waits(&mut self, tree: usize) {
        let waiting = std::mem::take(&mut self.outcomes[tree].waiting);
        for at in &waiting {
            // Who went to another tree may have been told there already; only who is stirred did.
            if !self.requests.is_stirred(*at) || self.tree_of(*at) == Some(tree) {
                self.sets.waits.0[*at] = None;
            }
        }
        self.outcomes[tree].waiting = waiting;
        self.outcomes[tree].waiting.clear();
    }

    /// Other work may have the number by now, or it belongs to another tree. Once in a round.
    fn forget_touched(&mut self) {
        for at in &self.register.touched {
            if let Some(wait) = self.sets.waits.0.get_mut(*at) {
                *wait = None;
            }
        }
    }

    /// What was just looked at can be otherwise in the next round, without any news.
    pub fn passes(&self) {
        self.passes.store(true, Relaxed);
    }

    pub fn has_passed(&self) -> bool {
        self.passes.load(Relaxed)
    }

    /// Is all in this tree as it was, and stays so? To be asked after counting.
    pub fn begin_tree(&mut self, tree: usize) -> bool {
        let rests = self.outcomes[tree].lasts && !self.is_stirred(tree);
        if self.forest.roots().first() == Some(&tree) {
            self.forget_touched();
        }
        self.outcomes[tree].is_kept = rests;
        if !rests {
            self.forget_waits(tree);
            self.outcomes[tree].needy.clear();
            self.passes.store(false, Relaxed);
        }
        rests
    }

    pub fn end_tree(&mut self, tree: usize) {
        let braked = || self.brakes.keys().any(|at| self.tree_of(*at) == Some(tree));
        let waits = |(policy, at): &(Policy, usize)| {
            let request = &self.requests[*at];
            *policy != Policy::FairShare && (request.has() == 0 || request.missing() > 0)
        };
        let is_fair = |book: &ClassBook| book.class.policy == Policy::FairShare;
        let others_wait =
            || !self.classes.iter().all(is_fair) && lacking_in_turn(self, tree).iter().any(waits);
        let lasts = !self.has_passed() && !braked() && !others_wait();
        self.outcomes[tree].lasts = lasts;
    }

    fn is_stirred(&self, tree: usize) -> bool {
        let (register, forest) = (self.register, self.forest);
        let is_here = |pool: Option<usize>| pool.is_some_and(|pool| forest.root(pool) == tree);
        let left = register.departed.iter();
        register.anew
            || left.map(|it| self.classes[it.class].pool).any(is_here)
            || register.left_pools.iter().any(|pool| is_here(Some(*pool)))
            || self.requests.stirred().any(|at| is_here(self.home(at)))
            || self
                .machines
                .stirred()
                .any(|at| is_here(self.machines[at].pool))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        News, Plan, Planner as _, Rounds,
        input::snapshot::{Policy, Pool},
        planner::FairShare,
        tests::fixture::{World, work_id},
    };

    /// Two trees in which more is asked for than there is, by name of the pool.
    fn two_trees() -> World {
        let mut world = World::eager().nodes(&[4, 4]);
        world.snapshot.pools.insert("other".into(), Pool::default());
        world.node_in("other", "m0", 4);
        world.class("apart", (Policy::FairShare, 10, 100), "other");
        for (at, user) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            world.job(&format!("here{at}"), user, 3);
            world.job_in("apart", &format!("there{at}"), user, 3);
        }
        world
    }

    fn round(rounds: &mut Rounds, world: &World, news: &News) -> Plan {
        let decided = rounds.decide(&world.snapshot, news);
        let plan = rounds.whole(decided);
        assert_eq!(plan, FairShare.schedule(&world.snapshot));
        plan
    }

    fn rested(rounds: &Rounds) -> Vec<bool> {
        let outcomes = rounds.outcomes();
        outcomes.iter().map(|outcome| outcome.is_kept).collect()
    }

    #[test]
    fn who_waits_in_a_tree_without_news_is_left_alone() {
        let mut world = two_trees();
        let mut rounds = Rounds::default();
        for _ in 0..6 {
            let plan = round(&mut rounds, &world, &News::everything());
            world.carry_out(&plan);
        }
        // What was read anew is looked at once more.
        for _ in 0..2 {
            let plan = round(&mut rounds, &world, &News::default());
            assert!(plan.is_empty(), "{plan:?}");
            world.carry_out(&plan);
        }
        let plan = round(&mut rounds, &world, &News::default());
        assert_eq!(rested(&rounds), [true, true]);
        assert!(plan.verdicts.values().any(|verdict| verdict.waits));
        world.carry_out(&plan);

        world.of("there4").max_processes = 1;
        let news = News::of_work(&world.snapshot, [work_id("there4")]);
        round(&mut rounds, &world, &news);
        assert_eq!(rested(&rounds), [true, false]);
    }

    #[test]
    fn of_a_tree_that_is_none_any_more_nothing_stays() {
        let mut world = two_trees();
        let node = world.node("m0");
        (node.capacity.cpu_milli, node.capacity.memory_bytes) =
            (2_000, 8 * crate::tests::fixture::GIB);
        for at in 0..5 {
            let size = &mut world.of(&format!("there{at}")).size;
            (size.cpu_milli, size.memory_bytes) = (1_000, crate::tests::fixture::GIB);
        }
        let mut rounds = Rounds::default();
        for _ in 0..4 {
            let plan = round(&mut rounds, &world, &News::everything());
            world.carry_out(&plan);
        }
        let needy = |id: &str| world.snapshot.carried.needy.contains(id);
        assert!(
            (0..5).any(|at| needy(&format!("there{at}"))),
            "some are needy there"
        );
        // Both trees become one, and most of the work goes, with its numbers.
        let other = world.snapshot.pools.get_mut("other").unwrap();
        other.parent = Some("default".into());
        world.snapshot.demand.retain(|id, _| id.as_str() == "here0");
        world.snapshot.allocations.clear();
        round(&mut rounds, &world, &News::everything());
        round(&mut rounds, &world, &News::default());
    }

    #[test]
    fn a_tree_whose_work_waits_for_a_budget_does_not_rest() {
        let mut world = World::eager().nodes(&[4]);
        let settings = &mut world.snapshot.tunables.settings;
        settings.preemption_pool_percent_per_hour = Some(25);
        world.job("first", "a", 1);
        let mut rounds = Rounds::default();
        let plan = round(&mut rounds, &world, &News::everything());
        world.carry_out(&plan);
        world.job("second", "b", 1);
        for _ in 0..4 {
            let plan = round(&mut rounds, &world, &News::everything());
            world.carry_out(&plan);
        }
        for _ in 0..3 {
            let plan = round(&mut rounds, &world, &News::default());
            assert_eq!(rested(&rounds), [false]);
            world.carry_out(&plan);
        }
        // An hour later there is budget again, and nobody had to say so.
        world.snapshot.now = world.snapshot.now.plus_ms(2 * 3_600_000);
        world.snapshot.taken_back.clear();
        assert!(!round(&mut rounds, &world, &News::default()).is_empty());
    }
}
