//! News: which nodes, which work and which shares are to be looked up anew.

use hayward_vocabulary::{Timestamp, WorkId, WorkKind};

use super::{
    Asked, ByName, Hash, Holding, Laws, Register, Served, Users,
    allocation_usage::Taken,
    derive::set,
    growth_cap::Rules,
    lookup::{Entry, OfWork, look_up},
    pool_tree::Forest,
};
use crate::{
    collections::{dense_set::Marks, id_list::Numbers},
    incremental::join::both,
    input::{
        delta::News,
        snapshot::{Demand, Snapshot},
    },
};

/// What has to be derived anew. Its memory is kept for the next news.
#[derive(Default)]
pub(super) struct Stirred {
    /// Nodes that differ themselves, and not just in what they hold.
    pub nodes: Marks,
    pub machines: Marks,
    pub requests: Marks,
    /// Work that asks for something else than before.
    pub moved: Marks,
    pub shares: Marks,
}

impl Stirred {
    fn clear(&mut self) {
        self.nodes.clear();
        self.machines.clear();
        self.requests.clear();
        self.moved.clear();
        self.shares.clear();
    }
}

impl Register {
    /// Brings the register up to a snapshot of which only the news differs from the last one.
    pub fn absorb(&mut self, snapshot: &Snapshot, news: &News) {
        #[cfg(test)]
        news.assert_true(snapshot);
        let laws = &self.laws;
        let same_laws = laws.quantum == snapshot.quantum
            && laws.tunables == snapshot.tunables
            && laws.pools == snapshot.pools
            && laws.classes == snapshot.classes;
        if news.everything || !same_laws {
            self.read_all(snapshot);
            return;
        }
        self.anew = false;
        self.kinds_moved = false;
        self.touched.clear();
        self.departed.clear();
        self.left_pools.clear();
        self.nodes_moved = false;
        self.splices.clear();
        self.withdrawn.clear();
        self.vacated.clear();
        let mut stirred = std::mem::take(&mut self.stirred);
        stirred.clear();
        let Some(again) = self.absorb_nodes(snapshot, news, &mut stirred) else {
            self.read_all(snapshot);
            return;
        };
        self.taken.resize(self.machines.len(), Taken::default());
        let (work, shares) = look_up(self, snapshot, (news, &again));
        // What ends takes its shares with it: gone first, they are no orphans in between.
        self.remove_shares(&shares, &mut stirred, |register, stirred| {
            register.absorb_work(snapshot, work, stirred);
        });
        for share in &shares {
            self.set_share(share, &mut stirred);
        }
        self.derive(snapshot, &mut stirred);
        self.stirred = stirred;
    }

    /// Everything, as on the first day.
    fn read_all(&mut self, snapshot: &Snapshot) {
        *self = Self {
            laws: Laws {
                quantum: snapshot.quantum.clone(),
                tunables: snapshot.tunables.clone(),
                pools: snapshot.pools.clone(),
                classes: snapshot.classes.clone(),
            },
            forest: Forest::new(&snapshot.pools),
            anew: true,
            kinds_moved: true,
            ..Self::default()
        };
        self.read_policy(snapshot);
        self.read_nodes(snapshot);
        let numbers = || {
            let mut numbers = ByName::default();
            numbers.reserve(snapshot.demand.len());
            for (at, id) in snapshot.demand.keys().enumerate() {
                numbers.insert(Hash::of(id.as_str()), at);
            }
            numbers
        };
        ((), self.request_at) = both(snapshot.demand.len(), || self.read_work(snapshot), numbers);
        self.share_at.reserve(snapshot.allocations.len());
        self.taken.resize(self.machines.len(), Taken::default());
        let mut stirred = Stirred::default();
        for (id, allocation) in &snapshot.allocations {
            self.set_share(&Entry::new(id, Some(allocation)), &mut stirred);
        }
        stirred.machines.extend(0..self.machines.len());
        stirred.requests.extend(0..self.requests.len());
        self.derive(snapshot, &mut stirred);
    }

    /// All work but its numbers by id.
    fn read_work(&mut self, snapshot: &Snapshot) {
        self.requests.reserve_exact(snapshot.demand.len());
        // By class and the number of the user.
        let mut groups: Vec<Vec<Vec<usize>>> = vec![Vec::new(); self.classes.len()];
        for (at, work) in snapshot.demand.iter().enumerate() {
            let asked = self.asked(snapshot, work, false);
            if let Some(class) = asked.class {
                let users = &mut groups[class];
                users.resize_with(users.len().max(asked.user_at + 1), Vec::new);
                users[asked.user_at].push(at);
            }
            self.requests.push(asked);
            self.join_group(at);
            self.note_avoiding(at);
        }
        for (served, users) in self.classes.iter_mut().zip(groups) {
            for mut group in users {
                if let Some(first) = group.first() {
                    let first = &self.requests[*first];
                    let user = (first.user.clone(), first.user_at);
                    group.sort_by_key(|at| self.requests[*at].submitted_at);
                    served.users.insert(user, group.into_iter().collect());
                }
            }
        }
    }

    fn read_policy(&mut self, snapshot: &Snapshot) {
        let own: Vec<_> = snapshot
            .pools
            .values()
            .map(|pool| pool.quantum.as_ref())
            .collect();
        self.open_quanta = vec![0; self.forest.len()];
        self.all_quanta = vec![0; self.forest.len()];
        self.quanta = (0..self.forest.len())
            .map(|pool| own[self.forest.root(pool)].unwrap_or(&snapshot.quantum))
            .cloned()
            .collect();
        for (name, class) in &snapshot.classes {
            self.class_at.insert(name.clone(), self.classes.len());
            self.classes.push(Served {
                name: name.as_str().into(),
                class: class.clone(),
                rules: Rules::of(&self.laws.tunables, class),
                pool: self.forest.find(&class.pool),
                users: Users::default(),
            });
        }
    }

    fn absorb_work(&mut self, snapshot: &Snapshot, work: Vec<OfWork>, stirred: &mut Stirred) {
        self.fetch_work(&work);
        for work in work {
            let id = work.name;
            match (work.at, work.said) {
                (Some(at), Some(demand)) => {
                    if let Some(before) = self.change_work(snapshot, at, (id, demand)) {
                        self.touched.push(at);
                        stirred.requests.insert(at);
                        if !self.requests[at].stands_as(&before) {
                            stirred.moved.insert(at);
                        }
                    }
                }
                (None, Some(demand)) => {
                    let at = self.new_work(snapshot, (id, demand));
                    self.request_at.insert(work.hash, at);
                    self.touched.push(at);
                    stirred.requests.insert(at);
                    stirred.moved.insert(at);
                }
                (Some(at), None) => {
                    self.remove_work(at, stirred);
                    self.touched.push(at);
                    stirred.requests.remove(at);
                    stirred.moved.remove(at);
                }
                (None, None) => {}
            }
        }
    }

    /// Answers what was known of it; none where that comes to the same. Mostly it is only further
    /// on with its tasks, and could use as much as before.
    fn change_work(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        work: (&WorkId, &Demand),
    ) -> Option<Asked> {
        let asked = self.asked(snapshot, work, !self.requests[at].held.is_empty());
        let before = &self.requests[at];
        let keeps_turn = asked.turn() == before.turn();
        let keeps_wishes = asked.wishes == before.wishes;
        let is_alike = keeps_turn && keeps_wishes && asked.asks_as(before);
        let could_use = is_alike.then(|| self.cap(at));
        if !keeps_turn {
            self.leave_class(at);
        }
        self.leave_group(at);
        let before = &mut self.requests[at];
        let kept = (std::mem::take(&mut before.held), before.holding);
        let before = std::mem::replace(before, asked);
        (self.requests[at].held, self.requests[at].holding) = kept;
        self.join_group(at);
        self.note_avoiding(at);
        if !keeps_turn {
            self.join_class(at);
        }
        could_use
            .is_none_or(|before| self.cap(at) != before)
            .then_some(before)
    }

    fn new_work(&mut self, snapshot: &Snapshot, work: (&WorkId, &Demand)) -> usize {
        let held = self.orphans_of(work.0);
        let mut asked = self.asked(snapshot, work, !held.is_empty());
        let at = self.vacant_requests.pop().unwrap_or(self.requests.len());
        for share in held.iter() {
            self.shares[share].request = Some(at);
        }
        asked.held = held;
        if at == self.requests.len() {
            self.requests.push(asked);
        } else {
            let place = &mut self.requests[at];
            if asked.held.is_empty() {
                // The list of who was there has memory already.
                asked.held = std::mem::take(&mut place.held);
            }
            *place = asked;
        }
        self.join_group(at);
        self.note_avoiding(at);
        self.join_class(at);
        at
    }

    /// Takes over what was held before its work came; mostly there is nothing of that kind.
    fn orphans_of(&mut self, work: &WorkId) -> Numbers {
        if self.orphans.is_empty() {
            return Numbers::default();
        }
        self.orphans.remove(work).unwrap_or_default()
    }

    fn remove_work(&mut self, at: usize, stirred: &mut Stirred) {
        self.leave_class(at);
        self.leave_group(at);
        set(&mut self.avoiding, at, false);
        let asked = &mut self.requests[at];
        let held = if asked.held.is_empty() {
            Numbers::default()
        } else {
            std::mem::take(&mut asked.held)
        };
        (asked.class, asked.deferral) = (None, None);
        asked.holding = Holding::default();
        self.withdrawn.push(asked.id.clone());
        self.vacated.push(at);
        self.vacant_requests.push(at);
        for share in held.iter() {
            self.shares[share].request = None;
            stirred.shares.insert(share);
            stirred.machines.extend(self.shares[share].machine);
        }
        if !held.is_empty() {
            self.orphans.insert(asked.id.clone(), held);
        }
    }
}

impl Asked {
    /// What its turn goes by, but for its order and id.
    fn turn(&self) -> (Option<usize>, usize, Timestamp) {
        (self.class, self.user_at, self.submitted_at)
    }

    /// Of two that have the same turn and wishes: do they differ in nothing but tasks, which matter
    /// to the cap alone? What they hold is no part of what they ask for.
    fn asks_as(&self, other: &Self) -> bool {
        let Self {
            id: _,
            kind,
            user: _,
            user_at: _,
            class: _,
            deferral,
            submitted_at: _,
            order,
            shape,
            max_processes,
            remaining_tasks: _,
            threads: _,
            task_ms: _,
            wishes: _,
            managed,
            runnable: _,
            completing,
            keeps_what_it_holds,
            held: _,
            holding: _,
        } = self;
        deferral.is_none()
            && other.deferral.is_none()
            && (*kind, *order, *shape) == (other.kind, other.order, other.shape)
            && (*max_processes, *managed) == (other.max_processes, other.managed)
            && *completing == other.completing
            && *keeps_what_it_holds == other.keeps_what_it_holds
    }

    /// What it holds says the same of its nodes as before: mostly it is only further on with its
    /// tasks.
    fn stands_as(&self, before: &Self) -> bool {
        let rules = |asked: &Self| (asked.class, asked.kind, asked.managed, asked.user_at);
        let size = |asked: &Self| (asked.order, asked.shape);
        rules(self) == rules(before)
            && size(self) == size(before)
            && self.wishes().service == before.wishes().service
    }

    /// Of a service: where its class may not be any more, it leaves.
    pub fn is_instance(&self) -> bool {
        self.kind == WorkKind::Service && !self.managed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FairShare, Planner, Rounds,
        tests::fixture::{World, work_id},
    };

    /// Section 5: tasks matter to the cap alone.
    #[test]
    fn work_that_is_only_further_on_with_its_tasks_stirs_nothing() {
        let mut world = World::eager().nodes(&[4]);
        world.job("goes_on", "a", 1).max_processes = 2;
        let goes_on = world.of("goes_on");
        (goes_on.remaining_tasks, goes_on.task_ms) = (100, Some(1_000));
        let mut register = Register::default();
        register.absorb(&world.snapshot, &News::everything());
        let mut said = |change: &dyn Fn(&mut Demand)| {
            change(world.of("goes_on"));
            let news = News::of_work(&world.snapshot, [work_id("goes_on")]);
            register.absorb(&world.snapshot, &news);
            (register.touched.len(), register.refreshed.len())
        };
        assert_eq!(said(&|it| it.remaining_tasks = 99), (0, 0));
        assert_eq!(said(&|it| it.task_ms = Some(1_001)), (0, 0));
        // A second process would find nothing to do.
        assert_eq!(said(&|it| it.remaining_tasks = 1), (1, 1));
        assert_eq!(said(&|it| it.max_processes = 1), (1, 1));
        assert_eq!(
            said(&|it| it.submitted_at = it.submitted_at.plus_ms(1)),
            (1, 1)
        );
    }

    /// what is held is of the service that its work is said to be of now.
    #[test]
    fn a_share_is_of_the_service_that_its_work_was_said_to_be_of_last() {
        let mut world = World::new().nodes(&[4, 4]);
        world.service("svc_x.0", "a", 1);
        let mut rounds = Rounds::default();
        let plan = rounds.decide(&world.snapshot, &News::everything()).plan;
        world.carry_out(&plan);
        let held = world.snapshot.allocations.clone();
        let news = News {
            allocations: held.into_iter().map(|(id, it)| (id, Some(it))).collect(),
            ..News::default()
        };
        rounds.decide(&world.snapshot, &news);
        for id in ["svc_x.0", "svc_x.1"] {
            world.service(id, "a", 1).service = Some(work_id("svc_x"));
        }
        let news = News::of_work(&world.snapshot, ["svc_x.0", "svc_x.1"].map(work_id));
        let plan = rounds.decide(&world.snapshot, &news).plan;
        assert_eq!(plan.grants[0].node.as_str(), "n01");
        assert_eq!(plan.grants, FairShare.schedule(&world.snapshot).grants);
    }
}
