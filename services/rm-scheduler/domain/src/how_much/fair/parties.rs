//! All users in all classes: whose work came and went, and what they want and have.

use super::{crowd::Seats, party::Party};
use crate::{books::Books, register::Splice};

/// By class and the number of the user.
#[derive(Default)]
pub(crate) struct Parties {
    by_class: Vec<Vec<Party>>,
    pub(super) seats: Seats,
}

/// What work may use and what it has, in quanta.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quanta {
    pub wants: u128,
    pub has: u128,
}

impl Quanta {
    pub fn add(&mut self, other: Self) {
        self.wants += other.wants;
        self.has += other.has;
    }

    pub fn remove(&mut self, other: Self) {
        self.wants -= other.wants;
        self.has -= other.has;
    }
}

/// What users of a class had, and have now, of work that does not have what it had. In quanta.
pub(crate) struct Moved {
    users: usize,
    /// By class and user.
    by_user: Vec<(u128, u128)>,
}

impl Moved {
    pub fn of(books: &Books) -> Self {
        let users = books.register.users();
        let mut by_user = vec![(0, 0); books.classes.len() * users];
        for at in books.requests.written() {
            let request = &books.requests[at];
            let (had, has) = (request.had, request.has());
            if let Some(class) = request.class.filter(|_| had != has) {
                let of_user = &mut by_user[class * users + books.demand(at).user_at];
                of_user.0 += u128::from(had.saturating_mul(request.order));
                of_user.1 += u128::from(has.saturating_mul(request.order));
            }
        }
        Self { users, by_user }
    }
}

impl Parties {
    pub fn splice(&mut self, splices: &[Splice]) {
        let mut left = splices;
        while let [splice, rest @ ..] = left {
            left = rest;
            // What is said anew of work leaves it where it is, mostly.
            if let [next, after @ ..] = rest
                && splice.is_undone_by(next)
            {
                left = after;
                continue;
            }
            let class = self.by_class.get_mut(splice.class);
            if let Some(party) = class.and_then(|users| users.get_mut(splice.user_at)) {
                party.splice(splice, &mut self.seats);
            }
        }
    }

    /// The users of a class by name.
    pub(super) fn take(&mut self, books: &Books, class: usize) -> Vec<Party> {
        let users = books.register.users();
        if self.by_class.len() <= class {
            self.by_class.resize_with(class + 1, Vec::new);
        }
        let parties = &mut self.by_class[class];
        if parties.len() < users {
            parties.resize_with(users, Party::default);
        }
        let by_name = books.classes[class].users.values();
        by_name
            .map(|work| std::mem::take(&mut parties[books.demand(work[0]).user_at]))
            .collect()
    }

    /// What the users of a class want and have after all that is decided, by name.
    pub fn quanta(&self, books: &Books, class: usize, moved: &Moved) -> Vec<Quanta> {
        let quanta = |work: &Vec<usize>| {
            let user = books.demand(work[0]).user_at;
            let mut quanta = self.by_class[class][user].quanta();
            let (had, has) = moved.by_user[class * moved.users + user];
            quanta.has = quanta.has + has - had;
            quanta
        };
        books.classes[class].users.values().map(quanta).collect()
    }

    pub(super) fn put_back(&mut self, books: &Books, class: usize, users: Vec<Party>) {
        let by_name = books.classes[class].users.values();
        for (work, party) in by_name.zip(users) {
            self.by_class[class][books.demand(work[0]).user_at] = party;
        }
    }
}
