//! The shares of work as they were told, by number, and what they come to for each user.

use std::collections::BTreeMap;

use super::{of_work, small::Kept};
use crate::{
    books::Books,
    plan::{Shares, Tally, WorkShare},
    register::Register,
};

/// Kept from round to round: a round looks only at work of which something else is to be said.
#[derive(Default)]
pub(crate) struct Told {
    by_work: Vec<Option<Counted>>,
    /// By class, then by the number of the user.
    sums: Vec<Vec<Tally>>,
}

/// Where it was counted, and what was said.
struct Counted {
    class: u32,
    user_at: u32,
    share: Kept,
}

impl Told {
    /// All work, as on the first day.
    pub fn of(books: &Books) -> Self {
        let mut told = Self::default();
        told.sums.resize_with(books.classes.len(), Vec::new);
        told.by_work.reserve_exact(books.requests.len());
        for at in 0..books.requests.len() {
            let share = told.count(books, at);
            told.by_work.push(share);
        }
        told
    }

    /// Says anew what is changed; what left its class without coming back is forgotten.
    pub fn renew(&mut self, books: &Books, changed: &[usize]) {
        self.by_work.resize_with(books.requests.len(), || None);
        let departed = books.register.departed.iter().map(|it| it.at);
        for at in departed.chain(changed.iter().copied()) {
            if let Some(old) = self.by_work[at].take() {
                let sum = &mut self.sums[old.class as usize][old.user_at as usize];
                sum.remove(&old.share.share().tally);
            }
        }
        for at in changed.iter().copied() {
            self.by_work[at] = self.count(books, at);
        }
    }

    fn count(&mut self, books: &Books, at: usize) -> Option<Counted> {
        let class = books.requests[at].class?;
        let user_at = books.demand(at).user_at;
        let share = of_work(books, at);
        let numbers = (u32::try_from(class).ok()?, u32::try_from(user_at).ok()?);
        let of_class = &mut self.sums[class];
        if of_class.len() <= user_at {
            of_class.resize_with(user_at + 1, Tally::default);
        }
        of_class[user_at].add(&share.tally);
        Some(Counted {
            class: numbers.0,
            user_at: numbers.1,
            share: share.into(),
        })
    }

    pub fn share(&self, work: usize) -> Option<WorkShare> {
        Some(self.by_work.get(work)?.as_ref()?.share.share())
    }

    pub fn sum(&self, class: usize, user_at: usize) -> Tally {
        self.sums[class].get(user_at).copied().unwrap_or_default()
    }

    /// The sums with all work under its user.
    pub fn whole(&self, register: &Register, sums: &Shares) -> Shares {
        let mut whole = sums.clone();
        for served in &register.classes {
            let Some(class) = whole.classes.get_mut(&served.name) else {
                continue;
            };
            for (name, work) in &served.users {
                let shares = work.iter().filter_map(|at| {
                    let share = self.share(*at)?;
                    Some((register.requests[*at].id.clone(), share))
                });
                // Built at once, a map takes half the room of one that grew.
                let shares: BTreeMap<_, _> = shares.collect();
                if let Some(user) = class.users.get_mut(name) {
                    user.work = shares;
                }
            }
        }
        whole
    }
}
