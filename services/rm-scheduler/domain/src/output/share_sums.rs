//! Sums of shares, and the check that the shares add up. The check shares no code with the
//! computation of the shares. The sums that must hold are listed in `shares.rs`.

use super::shares::{CapParts, ClassShare, Idle, PoolShare, Shares, Tally, UserShare, WorkShare};

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.divided += other.divided;
        self.resting += other.resting;
        self.lent += other.lent;
        self.held += other.held;
        self.staying += other.staying;
        self.granted += other.granted;
        self.vacating += other.vacating;
        self.closed += other.closed;
    }

    /// Subtracts an amount that was added before.
    pub(crate) fn remove(&mut self, other: &Self) {
        self.due -= other.due;
        self.divided -= other.divided;
        self.resting -= other.resting;
        self.lent -= other.lent;
        self.held -= other.held;
        self.staying -= other.staying;
        self.granted -= other.granted;
        self.vacating -= other.vacating;
        self.closed -= other.closed;
    }

    pub fn sum<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        tallies.fold(Self::default(), |mut sum, tally| {
            sum.add(tally);
            sum
        })
    }
}

impl Idle {
    pub fn sum(&self) -> u64 {
        self.reserved + self.forbidden + self.split + self.capped + self.no_demand
    }
}

impl CapParts {
    /// Returns the number of processes that all parts allow.
    pub fn least(&self) -> u64 {
        let limits = [self.initialization, self.doubling, self.reach];
        let base = self.prediction.unwrap_or(self.base);
        limits.into_iter().flatten().fold(base, u64::min)
    }
}

/// Collects a text for each sum that does not add up.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn check_equal<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, total: &T, sum: &T) {
        if total != sum {
            self.0.push(format!("{name}: {total:?} is not {sum:?}"));
        }
    }

    fn check_tally(&mut self, name: &str, tally: &Tally) {
        let due = tally.divided + tally.resting + tally.lent;
        self.check_equal(&format!("due of {name}"), &tally.due, &due);
        let held = tally.staying + tally.granted + tally.vacating;
        self.check_equal(&format!("held of {name}"), &tally.held, &held);
    }

    fn check_pool(&mut self, name: &str, pool: &PoolShare) {
        let closed = pool.lost + pool.offline + pool.blocked + pool.declined + pool.withheld;
        let name_of = |part: &str| format!("{part} of pool {name}");
        self.check_equal(&name_of("total"), &pool.total, &(pool.usable + closed));
        let filled = pool.held + pool.free;
        self.check_equal(&name_of("room"), &(pool.usable + pool.over), &filled);
        self.check_equal(&name_of("idle"), &pool.free, &pool.idle.sum());
    }

    fn check_class(&mut self, name: &str, class: &ClassShare) {
        let users = class.users.values();
        let sum = Tally::sum(users.clone().map(|user| &user.tally));
        self.check_equal(&format!("users of class {name}"), &class.tally, &sum);
        let assigned = class.unused + users.map(|user| user.assigned).sum::<u64>();
        self.check_equal(
            &format!("given to class {name}"),
            &class.assigned,
            &assigned,
        );
        for (user, share) in &class.users {
            self.check_user(&format!("{user} in {name}"), share);
        }
    }

    fn check_user(&mut self, name: &str, user: &UserShare) {
        let sum = Tally::sum(user.work.values().map(|work| &work.tally));
        self.check_equal(&format!("work of {name}"), &user.tally, &sum);
        let assigned = user.unused + user.tally.divided;
        self.check_equal(&format!("given to {name}"), &user.assigned, &assigned);
        for (id, work) in &user.work {
            self.check_work(id.as_str(), work);
        }
    }

    fn check_work(&mut self, id: &str, work: &WorkShare) {
        self.check_tally(id, &work.tally);
        let due = work.counted * work.quanta;
        self.check_equal(&format!("processes due of {id}"), &work.tally.due, &due);
        let cap = work.cap.least();
        self.check_equal(&format!("cap of {id}"), &work.wanted, &cap);
    }
}

impl Shares {
    /// Returns the sums that do not add up. The list is empty unless there is a defect.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Faults::default();
        for (name, pool) in &self.pools {
            faults.check_pool(name, pool);
        }
        self.check_fleet(&mut faults);
        self.check_priorities(&mut faults);
        for (name, class) in &self.classes {
            faults.check_class(name, class);
        }
        faults.0
    }

    fn check_fleet(&self, faults: &mut Faults) {
        let sum = |field: fn(&PoolShare) -> u64| self.pools.values().map(field).sum::<u64>();
        faults.check_equal("capacity", &self.capacity, &sum(|pool| pool.usable));
        faults.check_equal("free", &self.free, &sum(|pool| pool.free));
        let placed = sum(|pool| pool.held + pool.held_closed) + self.outside_pools;
        faults.check_equal("held by place", &self.held, &placed);
        let mut all = Tally::sum(self.classes.values().map(|class| &class.tally));
        let by_priority = Tally::sum(self.priorities.iter().map(|group| &group.tally));
        faults.check_equal("priorities", &by_priority, &all);
        all.add(&self.unclassed);
        faults.check_tally("all", &all);
        faults.check_equal("held by class", &self.held, &all.held);
        let closed = sum(|pool| pool.held_closed) + self.outside_pools;
        faults.check_equal("held on closed nodes", &closed, &all.closed);
    }

    /// Checks that each group of a tree has what the groups before it left.
    fn check_priorities(&self, faults: &mut Faults) {
        let mut tree = None;
        let mut available = 0;
        for group in &self.priorities {
            let classes = group
                .classes
                .iter()
                .filter_map(|name| self.classes.get(name));
            let sum = Tally::sum(classes.map(|class| &class.tally));
            let name = format!("priority {} of {:?}", group.priority, group.tree);
            faults.check_equal(&name, &group.tally, &sum);
            if tree != group.tree.as_ref() {
                tree = group.tree.as_ref();
                let pools = self.pools.values().filter(|pool| Some(&pool.tree) == tree);
                available = pools
                    .map(|pool| pool.usable.saturating_sub(pool.fixed))
                    .sum();
            }
            if let Some(quanta) = group.group_quanta {
                faults.check_equal(&format!("turn of {name}"), &quanta.available, &available);
                available = quanta.available.saturating_sub(quanta.assigned);
            }
        }
    }
}
