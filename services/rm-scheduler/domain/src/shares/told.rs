//! The shares of work as they were told, by number, and what they come to for each user.

use std::collections::BTreeMap;

use super::{of_work, small::Kept};
use crate::{
    books::Books,
    names::fetch,
    plan::{OfUser, Shares, Tally, WorkShare},
    register::Register,
};

/// Kept from round to round: a round looks only at work of which something else is to be said.
#[derive(Default)]
pub(crate) struct Told {
    by_work: Vec<Option<Counted>>,
    classes: Vec<OfClass>,
    /// Class and user of which no work was left while it was forgotten; some has come since.
    emptied: Vec<(usize, usize)>,
}

/// What the work of a class comes to.
#[derive(Default)]
pub(super) struct OfClass {
    /// By the number of the user.
    pub users: Vec<Sum>,
    /// Numbers of its users, by name.
    pub places: Vec<usize>,
    /// Some user joined it or left it since these were listed.
    pub is_other: bool,
}

#[derive(Default)]
pub(super) struct Sum {
    pub tally: Tally,
    /// Pieces of work in it.
    work: usize,
    /// The user is among those of the class.
    is_listed: bool,
    /// Something is said anew of one of them.
    pub is_said: bool,
}

/// Where it was counted, and what was said.
struct Counted {
    class: u32,
    user_at: u32,
    share: Kept,
}

/// A piece of work, and where it is counted.
#[derive(Clone, Copy)]
struct Whose {
    class: u32,
    user_at: u32,
    at: usize,
}

impl Whose {
    fn user(self) -> u64 {
        u64::from(self.class) << u32::BITS | u64::from(self.user_at)
    }

    /// By class, user and number, in one number, so that comparing is one step.
    fn place(self) -> u128 {
        u128::from(self.user()) << u64::BITS | self.at as u128
    }
}

impl Told {
    /// All work, as on the first day.
    pub fn of(books: &Books) -> Self {
        let mut told = Self::default();
        told.classes
            .resize_with(books.classes.len(), OfClass::default);
        told.by_work.resize_with(books.requests.len(), || None);
        for whose in (0..books.requests.len()).filter_map(|at| whose(books, at)) {
            told.count(books, whose);
        }
        told
    }

    /// Says anew what is changed, by user; what left its class without coming back is forgotten.
    pub fn renew(&mut self, books: &Books, changed: &[usize]) -> Vec<OfUser> {
        self.by_work.resize_with(books.requests.len(), || None);
        for departed in &books.register.departed {
            self.forget(departed.at);
        }
        let mut all: Vec<Whose> = Vec::with_capacity(changed.len());
        all.extend(changed.iter().filter_map(|at| whose(books, *at)));
        // What was kept lies anywhere in memory: read in one go, it is waited for at once.
        for at in changed {
            self.forget(*at);
        }
        fetch(changed.iter().map(|at| books.id(*at).as_str()));
        all.sort_unstable_by_key(|it| it.place());
        let of_users = all.chunk_by(|one, other| one.user() == other.user());
        let said = of_users.map(|work| self.say(books, work)).collect();
        for (class, user_at) in self.emptied.drain(..) {
            let of_class = &mut self.classes[class];
            let sum = &mut of_class.users[user_at];
            if sum.work == 0 && std::mem::take(&mut sum.is_listed) {
                of_class.is_other = true;
            }
        }
        said
    }

    /// Of work of one user in one class.
    fn say(&mut self, books: &Books, work: &[Whose]) -> OfUser {
        let first = work[0];
        let mut said = Vec::with_capacity(work.len());
        for whose in work {
            let share = self.count(books, *whose);
            said.push((books.id(whose.at).clone(), share));
        }
        let class = first.class as usize;
        self.classes[class].users[first.user_at as usize].is_said = true;
        OfUser {
            class: books.classes[class].name.to_owned(),
            user: books.demand(first.at).user.clone(),
            work: said,
        }
    }

    fn count(&mut self, books: &Books, whose: Whose) -> WorkShare {
        let share = of_work(books, whose.at);
        let (of_class, user_at) = (
            &mut self.classes[whose.class as usize],
            whose.user_at as usize,
        );
        if of_class.users.len() <= user_at {
            of_class.users.resize_with(user_at + 1, Sum::default);
        }
        let sum = &mut of_class.users[user_at];
        of_class.is_other |= !std::mem::replace(&mut sum.is_listed, true);
        sum.work += 1;
        sum.tally.add(&share.tally);
        self.by_work[whose.at] = Some(Counted {
            class: whose.class,
            user_at: whose.user_at,
            share: share.into(),
        });
        share
    }

    fn forget(&mut self, at: usize) {
        if let Some(old) = self.by_work[at].take() {
            let (class, user_at) = (old.class as usize, old.user_at as usize);
            let sum = &mut self.classes[class].users[user_at];
            sum.tally.remove(&old.share.share().tally);
            sum.work -= 1;
            if sum.work == 0 {
                self.emptied.push((class, user_at));
            }
        }
    }

    pub(super) fn class(&mut self, class: usize) -> &mut OfClass {
        &mut self.classes[class]
    }

    pub fn share(&self, work: usize) -> Option<WorkShare> {
        Some(self.by_work.get(work)?.as_ref()?.share.share())
    }

    /// The sums with all work under its user.
    pub fn whole(&self, register: &Register, sums: &Shares) -> Shares {
        let mut whole = sums.clone();
        for served in &register.classes {
            let Some(class) = whole.classes.get_mut(&served.name) else {
                continue;
            };
            for (name, work) in served.users.iter() {
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

fn whose(books: &Books, at: usize) -> Option<Whose> {
    let (class, user_at) = (books.requests[at].class?, books.demand(at).user_at);
    Some(Whose {
        class: u32::try_from(class).ok()?,
        user_at: u32::try_from(user_at).ok()?,
        at,
    })
}
