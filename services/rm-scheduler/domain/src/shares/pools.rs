//! The room of each pool. What each node adds is kept, so only nodes that differ are looked at, and
//! of the others those with free room are asked why it is free.

use super::idle::{Wishers, Wishes};
use crate::{
    books::Books,
    marks::Members,
    plan::{PoolShare, Shares},
    snapshot::Node,
};

#[derive(Default)]
pub(crate) struct Pools {
    /// By pool, without why room is idle.
    sums: Vec<PoolShare>,
    /// Held on nodes that belong to no pool.
    elsewhere: u64,
    /// By node.
    parts: Vec<Part>,
    /// Nodes with free room.
    free: Members,
    wishers: Wishers,
}

/// What a node adds to its pool.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Part {
    pool: Option<usize>,
    order: u64,
    shut: Option<Shut>,
    held: u64,
    fixed: u64,
    free: u64,
}

/// The first thing that keeps a node from taking work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shut {
    Lost,
    Offline,
    Blocked,
    Declined,
    Withheld,
}

fn shut(node: &Node) -> Shut {
    match node {
        node if node.lost => Shut::Lost,
        node if node.offline => Shut::Offline,
        node if node.block.is_some() => Shut::Blocked,
        node if !node.takes_work => Shut::Declined,
        _ => Shut::Withheld,
    }
}

impl Pools {
    pub fn tell(&mut self, books: &Books, shares: &mut Shares) {
        if books.register.anew {
            *self = Self::default();
            self.sums
                .resize_with(books.forest.len(), PoolShare::default);
            self.parts.resize(books.machines.len(), Part::default());
            (0..books.machines.len()).for_each(|at| self.renew(books, at));
        } else {
            self.parts.resize(books.machines.len(), Part::default());
            books
                .machines
                .stirred()
                .for_each(|at| self.renew(books, at));
        }
        self.wishers.renew(books);
        #[cfg(test)]
        self.wishers.assert_recounted(books);
        let wishes = Wishes::of(books, &self.wishers);
        let mut pools = self.sums.clone();
        for (at, pool) in pools.iter_mut().enumerate() {
            books
                .forest
                .name(books.forest.root(at))
                .clone_into(&mut pool.tree);
        }
        for at in self.free.iter() {
            if let Some(pool) = self.parts[at].pool {
                wishes.explain(books, at, &mut pools[pool].idle);
            }
        }
        let lost = books.register.unplaced.iter();
        let lost = lost.map(|at| books.held[*at].order);
        shares.elsewhere = self.elsewhere + lost.sum::<u64>();
        shares.capacity = pools.iter().map(|pool| pool.usable).sum();
        shares.free = pools.iter().map(|pool| pool.free).sum();
        let names = (0..pools.len()).map(|pool| books.forest.name(pool).to_owned());
        shares.pools = names.zip(pools).collect();
    }

    fn renew(&mut self, books: &Books, at: usize) {
        let part = part(books, at);
        let before = std::mem::replace(&mut self.parts[at], part);
        if before != part {
            self.free.set(at, part.free > 0);
            self.count(&before, |sum, amount| *sum -= amount);
            self.count(&part, |sum, amount| *sum += amount);
        }
    }

    fn count(&mut self, part: &Part, add: impl Fn(&mut u64, u64)) {
        let Some(pool) = part.pool else {
            add(&mut self.elsewhere, part.held);
            return;
        };
        let sums = &mut self.sums[pool];
        add(&mut sums.total, part.order);
        let Some(shut) = part.shut else {
            add(&mut sums.usable, part.order);
            add(&mut sums.held, part.held);
            add(&mut sums.fixed, part.fixed);
            add(&mut sums.over, part.held.saturating_sub(part.order));
            add(&mut sums.free, part.free);
            return;
        };
        let quanta = match shut {
            Shut::Lost => &mut sums.lost,
            Shut::Offline => &mut sums.offline,
            Shut::Blocked => &mut sums.blocked,
            Shut::Declined => &mut sums.declined,
            Shut::Withheld => &mut sums.withheld,
        };
        add(quanta, part.order);
        add(&mut sums.held_closed, part.held);
    }
}

fn part(books: &Books, at: usize) -> Part {
    let machine = &books.machines[at];
    let granted = machine.pending.iter().map(|at| books.pending[*at].order);
    let held = books.station(at).held_quanta + granted.sum::<u64>();
    let open = machine.is_schedulable();
    Part {
        pool: machine.pool,
        order: machine.order,
        shut: (!open).then(|| shut(&books.station(at).node)),
        held,
        fixed: machine.order - books.room(at).order,
        free: if open { machine.free.order } else { 0 },
    }
}
