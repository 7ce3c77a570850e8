//! Checks that the shares add up. It shares no code with the computation of the shares.

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
        self.meant + self.kept + self.split + self.capped + self.unasked
    }
}

impl CapParts {
    /// Returns the number of processes that all parts allow.
    pub fn least(&self) -> u64 {
        let limits = [self.initialization, self.doubling, self.room];
        let base = self.prediction.unwrap_or(self.base);
        limits.into_iter().flatten().fold(base, u64::min)
    }
}

/// Collects the statements that are not true.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, level: &T, below: &T) {
        if level != below {
            self.0.push(format!("{what}: {level:?} is not {below:?}"));
        }
    }

    fn tally(&mut self, what: &str, tally: &Tally) {
        let due = tally.divided + tally.resting + tally.lent;
        self.same(&format!("due of {what}"), &tally.due, &due);
        let held = tally.staying + tally.granted + tally.vacating;
        self.same(&format!("held of {what}"), &tally.held, &held);
    }

    fn pool(&mut self, name: &str, pool: &PoolShare) {
        let shut = pool.lost + pool.offline + pool.blocked + pool.declined + pool.withheld;
        let what = |part: &str| format!("{part} of pool {name}");
        self.same(&what("total"), &pool.total, &(pool.usable + shut));
        let filled = pool.held + pool.free;
        self.same(&what("room"), &(pool.usable + pool.over), &filled);
        self.same(&what("idle"), &pool.free, &pool.idle.sum());
    }

    fn class(&mut self, name: &str, class: &ClassShare) {
        let users = class.users.values();
        let sum = Tally::sum(users.clone().map(|user| &user.tally));
        self.same(&format!("users of class {name}"), &class.tally, &sum);
        let given = class.left + users.map(|user| user.given).sum::<u64>();
        self.same(&format!("given to class {name}"), &class.given, &given);
        for (user, share) in &class.users {
            self.user(&format!("{user} in {name}"), share);
        }
    }

    fn user(&mut self, name: &str, user: &UserShare) {
        let sum = Tally::sum(user.work.values().map(|work| &work.tally));
        self.same(&format!("work of {name}"), &user.tally, &sum);
        let given = user.left + user.tally.divided;
        self.same(&format!("given to {name}"), &user.given, &given);
        for (id, work) in &user.work {
            self.work(id.as_str(), work);
        }
    }

    fn work(&mut self, id: &str, work: &WorkShare) {
        self.tally(id, &work.tally);
        let due = work.counted * work.order;
        self.same(&format!("processes due of {id}"), &work.tally.due, &due);
        let cap = work.cap.least();
        self.same(&format!("cap of {id}"), &work.wanted, &cap);
    }
}

impl Shares {
    /// Returns the sums that do not add up. The list is empty unless there is a defect.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Faults::default();
        for (name, pool) in &self.pools {
            faults.pool(name, pool);
        }
        self.fleet(&mut faults);
        self.group_order(&mut faults);
        for (name, class) in &self.classes {
            faults.class(name, class);
        }
        faults.0
    }

    fn fleet(&self, faults: &mut Faults) {
        let sum = |field: fn(&PoolShare) -> u64| self.pools.values().map(field).sum::<u64>();
        faults.same("capacity", &self.capacity, &sum(|pool| pool.usable));
        faults.same("free", &self.free, &sum(|pool| pool.free));
        let placed = sum(|pool| pool.held + pool.held_closed) + self.elsewhere;
        faults.same("held by place", &self.held, &placed);
        let mut all = Tally::sum(self.classes.values().map(|class| &class.tally));
        let by_priority = Tally::sum(self.priorities.iter().map(|group| &group.tally));
        faults.same("priorities", &by_priority, &all);
        all.add(&self.unclassed);
        faults.tally("all", &all);
        faults.same("held by class", &self.held, &all.held);
        let closed = sum(|pool| pool.held_closed) + self.elsewhere;
        faults.same("held on closed nodes", &closed, &all.closed);
    }

    fn group_order(&self, faults: &mut Faults) {
        let mut tree = None;
        let mut available = 0;
        for group in &self.priorities {
            let classes = group
                .classes
                .iter()
                .filter_map(|name| self.classes.get(name));
            let sum = Tally::sum(classes.map(|class| &class.tally));
            let name = format!("priority {} of {:?}", group.priority, group.tree);
            faults.same(&name, &group.tally, &sum);
            if tree != group.tree.as_ref() {
                tree = group.tree.as_ref();
                let pools = self.pools.values().filter(|it| Some(&it.tree) == tree);
                available = pools.map(|it| it.usable.saturating_sub(it.fixed)).sum();
            }
            if let Some(turn) = group.turn {
                faults.same(&format!("turn of {name}"), &turn.available, &available);
                available = turn.available.saturating_sub(turn.taken);
            }
        }
    }
}
