//! How-Much: how many processes each piece of work is due (section 9), group by group, best
//! priority first. It sees everything that preemption could provide; where the room is, and whose
//! it is now, is decided later.

mod fair;
pub(crate) mod fixed;

use std::collections::BTreeMap;

use crate::{books::Books, orders::Holes, reserve, snapshot::Policy};

/// Free room by pool, without what nobody may take back. Consumed from group to group.
pub(crate) struct Tables {
    pools: Vec<Holes>,
}

impl Tables {
    fn build(books: &Books) -> Self {
        let mut pools = vec![Holes::default(); books.forest.len()];
        for machine in books
            .machines
            .iter()
            .filter(|machine| machine.is_schedulable())
        {
            if let Some(pool) = machine.pool {
                pools[pool].add(machine.room_order, 1);
            }
        }
        Self { pools }
    }

    pub fn of(&self, pool: usize) -> &Holes {
        &self.pools[pool]
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
        if in_tree && !class.requests.is_empty() {
            groups
                .entry((class.class.priority, class.class.policy))
                .or_default()
                .push(at);
        }
    }
    groups
        .into_iter()
        .map(|((_, policy), classes)| (policy, classes))
        .collect()
}

pub(crate) fn count(books: &mut Books, tree: usize) {
    let mut tables = Tables::build(books);
    for (policy, classes) in groups(books, tree) {
        match policy {
            Policy::FairShare => fair::count(books, &mut tables, &classes),
            Policy::FixedShare => fixed::count(books, &mut tables, &classes),
            Policy::Reserve => reserve::promise(books, &mut tables, &classes),
        }
    }
}
