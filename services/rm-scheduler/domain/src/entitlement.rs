//! How-Much: how many processes each piece of work is due (section 9), group by group, best
//! priority first. It sees everything that preemption could provide; where the room is, and whose
//! it is now, is decided later.

pub(crate) mod apportion;
pub(crate) mod deficit;
pub(crate) mod fair_share;
mod fixed_share;
pub(crate) mod hole_table;
pub(crate) mod reachable;
pub(crate) mod whole_nodes;

use std::collections::BTreeMap;

use crate::{input::snapshot::Policy, output::plan::Turn, state::Books};
use hole_table::Holes;

/// Free room by pool, without what nobody may take back. Consumed from group to group.
pub(crate) struct Tables {
    pools: Vec<Holes>,
}

impl Tables {
    fn build(books: &Books) -> Self {
        let mut pools = vec![Holes::default(); books.forest.len()];
        for ((pool, room), nodes) in &books.register.kinds {
            pools[*pool].add(room.order, *nodes);
        }
        for (machine, room) in &books.changed_rooms {
            let station = &books.register.machines[*machine];
            if let Some(pool) = station.pool.filter(|_| station.schedulable) {
                pools[pool].remove(station.room.order);
                pools[pool].add(room.order, 1);
            }
        }
        Self { pools }
    }

    pub fn of(&self, pool: usize) -> &Holes {
        &self.pools[pool]
    }

    /// What is left in the pools of a tree.
    fn quanta(&self, books: &Books, tree: usize) -> u64 {
        let pools = books.forest.subtree(tree).iter();
        pools.map(|pool| self.pools[*pool].quanta()).sum()
    }

    pub fn of_mut(&mut self, pool: usize) -> &mut Holes {
        &mut self.pools[pool]
    }
}

/// The classes of one tree that have work, in groups of one priority and one policy.
pub(crate) fn groups(books: &Books, tree: usize) -> Vec<(Policy, Vec<usize>)> {
    let mut groups: BTreeMap<(i64, Policy), Vec<usize>> = BTreeMap::new();
    for (at, class) in books.classes.iter().enumerate() {
        let in_tree = class
            .pool
            .is_some_and(|pool| books.forest.root(pool) == tree);
        if in_tree && !class.users.is_empty() {
            groups
                .entry((class.class.priority, class.class.policy))
                .or_default()
                .push(at);
        }
    }
    let in_order = |classes: &mut Vec<usize>| {
        classes.sort_by_key(|at| (books.classes[*at].class.place, books.classes[*at].name));
    };
    groups
        .into_iter()
        .map(|((_, policy), mut classes)| {
            in_order(&mut classes);
            (policy, classes)
        })
        .collect()
}

/// Work of a group whose turn goes by class and then by age. With the settings that count
/// what fits, classes of one priority are merged by age (W-17).
pub(crate) fn by_class_and_age(books: &Books, classes: &[usize]) -> Vec<usize> {
    let of = |class: &usize| books.classes[*class].requests();
    let by_age = |work: &mut Vec<usize>| {
        work.sort_by(|a, b| books.age(*a).cmp(&books.age(*b)));
    };
    if books.settings.count_what_fits {
        let mut work = classes.iter().flat_map(of).collect();
        by_age(&mut work);
        return work;
    }
    let one_class = classes.iter().map(|class| {
        let mut work = of(class).collect();
        by_age(&mut work);
        work
    });
    one_class.flatten().collect()
}

pub(crate) fn count(books: &mut Books, tree: usize) {
    let mut tables = Tables::build(books);
    for (policy, classes) in groups(books, tree) {
        let available = tables.quanta(books, tree);
        match policy {
            Policy::FairShare => fair_share::count(books, &mut tables, &classes),
            Policy::FixedShare => fixed_share::count(books, &mut tables, &classes),
            Policy::Reserve => whole_nodes::promise(books, &mut tables, &classes),
        }
        let taken = available - tables.quanta(books, tree);
        let turn = Turn { available, taken };
        books
            .turns
            .extend(classes.first().map(|class| (*class, turn)));
    }
}
