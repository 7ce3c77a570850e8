//! One node that could be cleared, and who would have to leave it.

use std::cell::OnceCell;

use hayward_vocabulary::Size;

use super::Offer;
use crate::{
    index::node_space::Room,
    preemption::{budget::Purse, cheapest},
    state::Books,
};

/// A share that could be taken, of a node.
#[derive(Clone, Copy)]
pub(super) struct Lot {
    held: u32,
    machine: u32,
}

impl Lot {
    pub fn of(machine: usize, held: usize) -> Option<Self> {
        Some(Self {
            machine: u32::try_from(machine).ok()?,
            held: u32::try_from(held).ok()?,
        })
    }

    /// Both in a number that is quick to compare.
    pub fn key(self) -> u64 {
        u64::from(self.machine) << u32::BITS | u64::from(self.held)
    }

    pub fn machine(self) -> usize {
        self.machine as usize
    }

    fn held(self) -> usize {
        self.held as usize
    }
}

/// A node where something leaves or could leave.
pub(super) struct Place {
    pub machine: usize,
    /// Quanta that will be free there.
    coming: u64,
    /// What could be taken there, among that of all nodes.
    lots: std::ops::Range<usize>,
    /// Quanta of all of them.
    most: u64,
    /// Quanta of the largest.
    largest: u64,
    /// What is lost at least with any.
    least_lost_ms: u64,
    /// Most nodes are never looked at that closely.
    within: OnceCell<Box<Within>>,
}

/// What there is on a node.
pub(super) struct Within {
    /// What will be free there.
    room: Room,
    /// Shares whose owners had more than their counts in the beginning, the cheapest first. Nobody
    /// comes to exceed its count by what is done here, so no others are ever taken.
    takeable: Vec<Taking>,
}

/// What a round does not change about a share that could be taken.
struct Taking {
    held: usize,
    owner: usize,
    order: u64,
    /// Milliseconds of work; nothing where that does not count.
    lost_ms: u64,
}

impl Within {
    fn of(books: &Books, machine: usize, lots: &[Lot]) -> Self {
        let taking = |held: usize| {
            let share = &books.held[held];
            Some(Taking {
                held,
                owner: share.request?,
                order: share.order,
                lost_ms: lost_ms(books, held),
            })
        };
        let held = lots.iter().map(|lot| lot.held());
        let stays = held.filter(|held| !books.leaving[*held]);
        let mut takeable = Vec::with_capacity(lots.len());
        takeable.extend(stays.filter_map(taking));
        if takeable.len() > 1 {
            takeable.sort_by(|a: &Taking, b: &Taking| {
                cheapest(books, a.held).cmp(&cheapest(books, b.held))
            });
        }
        Self {
            room: books.coming_room(machine),
            takeable,
        }
    }
}

fn lost_ms(books: &Books, held: usize) -> u64 {
    let counts = books.settings.lose_least;
    if counts { books.invested_ms(held) } else { 0 }
}

impl Place {
    /// These can be taken, the first of them at that place among those of all nodes.
    pub fn of(
        books: &Books,
        (machine, coming): (usize, u64),
        (first, lots): (usize, &[Lot]),
    ) -> Self {
        let held = || lots.iter().map(|lot| lot.held());
        let orders = || held().map(|held| books.register.loads[held].order);
        let lost_ms = held().map(|held| lost_ms(books, held));
        Self {
            machine,
            coming,
            lots: first..first + lots.len(),
            most: orders().sum(),
            largest: orders().max().unwrap_or(0),
            least_lost_ms: lost_ms.min().unwrap_or(0),
            within: OnceCell::new(),
        }
    }

    /// `all` is what could be taken on any node.
    pub fn look(&self, books: &Books, all: &[Lot]) -> &Within {
        let within = || Within::of(books, self.machine, &all[self.lots.clone()]);
        self.within.get_or_init(|| Box::new(within()))
    }

    /// Brings it to what was told to leave and is meant for somebody by now.
    pub fn renew(&mut self, books: &Books, all: &[Lot]) {
        self.look(books, all);
        let Some(within) = self.within.get_mut() else {
            return;
        };
        within.room = books.coming_room(self.machine);
        within.takeable.retain(|it| !books.leaving[it.held]);
        self.coming = within.room.order;
        let orders = within.takeable.iter().map(|it| it.order);
        self.most = orders.clone().sum();
        self.largest = orders.max().unwrap_or(0);
        let lost_ms = within.takeable.iter().map(|it| it.lost_ms);
        self.least_lost_ms = lost_ms.min().unwrap_or(0);
    }

    /// How many would have to leave for one process of this order, and what would be lost with
    /// them, at least; none where all that could be taken is too little. Quanta alone say it, so it
    /// costs next to nothing.
    pub fn at_least(&self, order: u64, position: usize) -> Option<Offer> {
        let lacking = order.saturating_sub(self.coming);
        if self.most < lacking {
            return None;
        }
        let count = lacking.div_ceil(self.largest.max(1));
        let lost_ms = count.saturating_mul(self.least_lost_ms);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some((count, lost_ms, position))
    }

    /// Would one process fit if all left that could be taken, whatever their owners keep?
    pub fn could_hold(&self, books: &Books, all: &[Lot], (order, size): (u64, &Size)) -> bool {
        if self.coming.saturating_add(self.most) < order {
            return false;
        }
        let within = self.look(books, all);
        let mut room = within.room.clone();
        for it in &within.takeable {
            let share = &books.held[it.held];
            room.give(share.order, &share.size, &share.gpus);
        }
        room.fitting(order, size) > 0
    }
}

/// The shares that have to leave a node so that one process fits; memory for many nodes.
#[derive(Default)]
pub(super) struct Victims {
    pub chosen: Vec<usize>,
    /// Work lost with them.
    pub lost_ms: u64,
    /// By owner: how many are taken.
    spent: Vec<(usize, u64)>,
}

impl Victims {
    /// False when it never will, or not within the budget (B5).
    pub fn choose(
        &mut self,
        books: &Books,
        (place, all): (&Place, &[Lot]),
        (order, size): (u64, &Size),
        purse: &mut Purse,
    ) -> bool {
        self.chosen.clear();
        self.spent.clear();
        self.lost_ms = 0;
        if place.coming.saturating_add(place.most) < order {
            return false;
        }
        let within = place.look(books, all);
        if within.room.fitting(order, size) > 0 {
            return true;
        }
        let mut quanta = place.coming;
        let mut room = None;
        for it in &within.takeable {
            if !self.may_take(books, it, purse) {
                continue;
            }
            self.chosen.push(it.held);
            self.lost_ms = self.lost_ms.saturating_add(it.lost_ms);
            quanta += it.order;
            // As long as there are not even the quanta, nothing else has to be looked at.
            if quanta < order {
                continue;
            }
            let given = if room.is_none() {
                0
            } else {
                self.chosen.len() - 1
            };
            let room = room.get_or_insert_with(|| within.room.clone());
            for held in &self.chosen[given..] {
                let share = &books.held[*held];
                room.give(share.order, &share.size, &share.gpus);
            }
            if room.fitting(order, size) > 0 {
                return true;
            }
        }
        false
    }

    /// Its owner has more than its count, also without what is taken already, and there is budget.
    fn may_take(&mut self, books: &Books, it: &Taking, purse: &mut Purse) -> bool {
        if books.leaving[it.held] {
            return false;
        }
        let known = self.spent.iter().position(|(owner, _)| *owner == it.owner);
        let known = known.unwrap_or_else(|| {
            self.spent.push((it.owner, 0));
            self.spent.len() - 1
        });
        let taken = &mut self.spent[known].1;
        let exceeds = *taken < books.requests[it.owner].excess();
        let may = exceeds && purse.allows(&books.held[it.held]);
        *taken += u64::from(may);
        may
    }
}
