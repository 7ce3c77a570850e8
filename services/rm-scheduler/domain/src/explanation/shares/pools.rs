//! The room of each pool. What each node adds is kept, so only nodes that differ are looked at, and
//! of the others those with free room are asked why it is free.

use super::idle::{Why, Wishers, Wishes, meant};
use crate::{
    collections::dense_set::Members,
    input::snapshot::Node,
    output::plan::{Idle, PoolShare, Shares},
    state::Books,
};

#[derive(Default)]
pub(crate) struct Pools {
    /// By pool.
    sums: Vec<PoolShare>,
    /// Held on nodes that belong to no pool.
    elsewhere: u64,
    /// By node.
    parts: Vec<Part>,
    /// Nodes with free room.
    free: Members,
    wishers: Wishers,
    /// By these it was said why room is free.
    wishes: Wishes,
}

/// What a node adds to its pool, in one line of memory.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
struct Part {
    pool: Option<u32>,
    shut: Option<Shut>,
    order: u64,
    held: u64,
    fixed: u64,
    free: u64,
    /// Of what is free: meant for somebody. And why the rest is.
    meant: u64,
    why: Why,
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
    /// Takes up what this work asks for; all that may ask for something else than before.
    pub fn listen(&mut self, books: &Books, work: impl Iterator<Item = usize> + Clone) {
        if books.register.anew {
            *self = Self::default();
        }
        self.wishers.renew(books, work);
        #[cfg(test)]
        self.wishers.assert_recounted(books);
    }

    pub fn tell(&mut self, books: &Books, shares: &mut Shares) {
        let wishes = Wishes::of(books, &self.wishers);
        let is_same = wishes.are_those(&self.wishes);
        self.wishes = wishes;
        self.parts.resize(books.machines.len(), Part::default());
        self.sums
            .resize_with(books.forest.len(), PoolShare::default);
        let all = if books.register.anew {
            (0..books.machines.len()).collect()
        } else {
            self.stirred(books)
        };
        for at in all {
            self.renew(books, at);
        }
        if !is_same {
            let free = self.free.iter();
            let rest = free.filter(|at| !books.machines.is_stirred(*at));
            for at in rest {
                let (part, why) = (&mut self.parts[at], self.wishes.why(books, at));
                if let Some(pool) = part.pool.filter(|_| why != part.why) {
                    let sums = &mut self.sums[pool as usize];
                    let (amount, idle) = (part.free - part.meant, &mut sums.idle);
                    *for_why(idle, part.why) -= amount;
                    *for_why(idle, why) += amount;
                }
                part.why = why;
            }
        }
        #[cfg(test)]
        for at in 0..books.machines.len() {
            let now = part(books, at, &self.wishes);
            assert!(self.parts[at] == now, "what node {at} adds to its pool");
            assert_eq!((now.held, now.fixed), held_and_fixed(books, at), "at {at}");
        }
        let mut pools = self.sums.clone();
        for (at, pool) in pools.iter_mut().enumerate() {
            books
                .forest
                .name(books.forest.root(at))
                .clone_into(&mut pool.tree);
        }
        let lost = books.register.unplaced.iter();
        let lost = lost.map(|at| books.held[*at].order);
        shares.elsewhere = self.elsewhere + lost.sum::<u64>();
        shares.capacity = pools.iter().map(|pool| pool.usable).sum();
        shares.free = pools.iter().map(|pool| pool.free).sum();
        let names = (0..pools.len()).map(|pool| books.forest.name(pool).to_owned());
        shares.pools = names.zip(pools).collect();
    }

    /// Nodes lie anywhere in memory: what is asked of these has come once they are named.
    fn stirred(&self, books: &Books) -> Vec<usize> {
        let all: Vec<usize> = books.machines.stirred().collect();
        let read = all.iter().fold(0, |read, at| {
            let machine = &books.machines[*at];
            read ^ machine.order ^ machine.free.order ^ self.parts[*at].order
        });
        std::hint::black_box(read);
        all
    }

    fn renew(&mut self, books: &Books, at: usize) {
        let part = part(books, at, &self.wishes);
        let before = self.parts[at];
        if before != part {
            self.parts[at] = part;
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
        let sums = &mut self.sums[pool as usize];
        add(&mut sums.total, part.order);
        let Some(shut) = part.shut else {
            add(&mut sums.usable, part.order);
            add(&mut sums.held, part.held);
            add(&mut sums.fixed, part.fixed);
            add(&mut sums.over, part.held.saturating_sub(part.order));
            add(&mut sums.free, part.free);
            add(&mut sums.idle.meant, part.meant);
            let rest = for_why(&mut sums.idle, part.why);
            add(rest, part.free - part.meant);
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

/// What is free for this reason.
fn for_why(idle: &mut Idle, why: Why) -> &mut u64 {
    match why {
        Why::Kept => &mut idle.kept,
        Why::Split => &mut idle.split,
        Why::Capped => &mut idle.capped,
        Why::Unasked => &mut idle.unasked,
    }
}

fn part(books: &Books, at: usize, wishes: &Wishes) -> Part {
    let machine = &books.machines[at];
    let open = machine.is_schedulable();
    let free = if open { machine.free.order } else { 0 };
    let (meant, why) = if free > 0 {
        (meant(books, at).min(free), wishes.why(books, at))
    } else {
        (0, Why::Unasked)
    };
    let (held, fixed) = if machine.is_plain {
        // What the register and this round's grants say lies elsewhere, and is not waited for.
        (machine.order - machine.free.order, 0)
    } else {
        held_and_fixed(books, at)
    };
    Part {
        pool: machine.pool.and_then(|pool| u32::try_from(pool).ok()),
        shut: (!open).then(|| shut(&books.station(at).node)),
        order: machine.order,
        held,
        fixed,
        free,
        meant,
        why,
    }
}

fn held_and_fixed(books: &Books, at: usize) -> (u64, u64) {
    let machine = &books.machines[at];
    let granted = machine.pending.iter().map(|at| books.pending[*at].order);
    let held = books.station(at).held_quanta + granted.sum::<u64>();
    (held, machine.order - books.room(at).order)
}
