//! One node that could be cleared, and who would have to leave it.

use hayward_vocabulary::Size;

use super::Offer;
use crate::{books::Books, budget::Purse, overage::cheapest, room::Room};

/// A node where something leaves or could leave.
pub(super) struct Place {
    pub machine: usize,
    /// Quanta of the whole node.
    pub order: u64,
    /// What will be free there.
    pub room: Room,
    /// Shares whose owners had more than their counts in the beginning, the cheapest first. Nobody
    /// comes to exceed its count by what is done here, so no others are ever taken.
    takeable: Vec<Taking>,
    /// Quanta of all of them.
    most: u64,
    /// Quanta of the largest, and what is lost at least with any.
    largest: u64,
    least_lost_ms: u64,
}

/// What a round does not change about a share that could be taken.
struct Taking {
    held: usize,
    owner: usize,
    order: u64,
    /// Milliseconds of work; nothing where that does not count.
    lost_ms: u64,
}

impl Place {
    pub fn of(books: &Books, machine: usize, held: impl Iterator<Item = usize>) -> Self {
        let mut shares: Vec<usize> = held.collect();
        if shares.len() > 1 {
            shares.sort_by(|a, b| cheapest(books, *a).cmp(&cheapest(books, *b)));
        }
        let counts = books.settings.lose_least;
        let taking = |held: usize| {
            let share = &books.held[held];
            Some(Taking {
                held,
                owner: share.request?,
                order: share.order,
                lost_ms: if counts { books.invested_ms(held) } else { 0 },
            })
        };
        let mut place = Self {
            machine,
            order: books.machines[machine].order,
            room: Room::default(),
            most: 0,
            largest: 0,
            least_lost_ms: 0,
            takeable: shares.into_iter().filter_map(taking).collect(),
        };
        place.renew(books);
        place
    }

    /// Brings it to what was told to leave and is meant for somebody by now.
    pub fn renew(&mut self, books: &Books) {
        self.room = books.coming_room(self.machine);
        self.takeable.retain(|it| !books.leaving[it.held]);
        let orders = self.takeable.iter().map(|it| it.order);
        self.most = orders.clone().sum();
        self.largest = orders.max().unwrap_or(0);
        let lost_ms = self.takeable.iter().map(|it| it.lost_ms);
        self.least_lost_ms = lost_ms.min().unwrap_or(0);
    }

    /// How many would have to leave for one process of this order, and what would be lost with
    /// them, at least; none where it never fits. Quanta alone say it, so it costs next to nothing.
    pub fn at_least(&self, order: u64, position: usize) -> Option<Offer> {
        let lacking = order.saturating_sub(self.room.order);
        if self.order < order || self.most < lacking {
            return None;
        }
        let count = lacking.div_ceil(self.largest.max(1));
        let lost_ms = count.saturating_mul(self.least_lost_ms);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some((count, lost_ms, position))
    }

    /// Would one process fit if all left that could be taken, whatever their owners keep?
    pub fn could_hold(&self, books: &Books, (order, size): (u64, &Size)) -> bool {
        if self.room.order.saturating_add(self.most) < order {
            return false;
        }
        let mut room = self.room.clone();
        for it in &self.takeable {
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
        place: &Place,
        (order, size): (u64, &Size),
        purse: &mut Purse,
    ) -> bool {
        self.chosen.clear();
        self.spent.clear();
        self.lost_ms = 0;
        if place.room.fitting(order, size) > 0 {
            return true;
        }
        if place.room.order.saturating_add(place.most) < order {
            return false;
        }
        let mut quanta = place.room.order;
        let mut room = None;
        for it in &place.takeable {
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
            let room = room.get_or_insert_with(|| place.room.clone());
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
