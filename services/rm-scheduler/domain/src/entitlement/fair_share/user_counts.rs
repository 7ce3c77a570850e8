//! All users in all classes: whose work came and went, and what they want and have.

pub(crate) use super::work_groups::Quanta;
pub(super) use super::{
    user_count::Party,
    work_groups::{Seat, Seats, fetch},
};
use crate::{index::Splice, state::Books};

#[derive(Default)]
pub(crate) struct Parties {
    by_class: Vec<Users>,
    pub(super) seats: Seats,
}

/// The users of a class.
#[derive(Default)]
pub(super) struct Users {
    /// By the number of the user; some have no work in the class.
    parties: Vec<Party>,
    /// By the number of the user: where his name stands among those who have.
    places: Vec<Option<usize>>,
    /// Numbers of those who have, by name.
    by_name: Vec<usize>,
    /// Nobody has work who had none when this was noted, or the other way round.
    are_known: bool,
}

impl Users {
    fn note(&mut self, books: &Books, class: usize) {
        let by_name = books.classes[class].users.numbers();
        if self.are_known {
            #[cfg(test)]
            assert!(by_name.eq(self.by_name.iter().copied()));
            return;
        }
        let users = books.register.users();
        if self.parties.len() < users {
            self.parties.resize_with(users, Party::default);
        }
        self.by_name.clear();
        self.by_name.extend(by_name);
        self.places.clear();
        self.places.resize(self.parties.len(), None);
        for (place, user) in self.by_name.iter().enumerate() {
            self.places[*user] = Some(place);
        }
        self.are_known = true;
    }

    /// The one whose name stands here.
    pub fn at(&self, place: usize) -> &Party {
        &self.parties[self.by_name[place]]
    }

    pub fn by_name(&self) -> impl Iterator<Item = &Party> {
        self.by_name.iter().map(|user| &self.parties[*user])
    }

    /// By number, which is as they lie, with the number and where the name stands.
    pub fn each_mut(&mut self) -> impl Iterator<Item = ((usize, usize), &mut Party)> {
        let all = self.parties.iter_mut().zip(&self.places).enumerate();
        all.filter_map(|(user, (party, place))| place.map(|place| ((user, place), party)))
    }

    fn splice(&mut self, splice: &Splice, seats: &mut Seats) {
        let Some(party) = self.parties.get_mut(splice.user_at) else {
            self.are_known = false;
            return;
        };
        let had_some = party.has_some();
        party.splice(splice, seats);
        self.are_known &= had_some && party.has_some();
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
            if let Some(users) = self.by_class.get_mut(splice.class) {
                users.splice(splice, &mut self.seats);
            }
        }
    }

    pub(super) fn take(&mut self, books: &Books, class: usize) -> Users {
        if self.by_class.len() <= class {
            self.by_class.resize_with(class + 1, Users::default);
        }
        let mut users = std::mem::take(&mut self.by_class[class]);
        users.note(books, class);
        users
    }

    pub(super) fn put_back(&mut self, class: usize, users: Users) {
        self.by_class[class] = users;
    }

    /// What the users of a class want and have after all that is decided, by name.
    pub fn quanta(&self, class: usize, moved: &Moved) -> Vec<Quanta> {
        let users = &self.by_class[class];
        let quanta = |user: &usize| {
            let mut quanta = users.parties[*user].quanta();
            let (had, has) = moved.by_user[class * moved.users + user];
            quanta.has = quanta.has + has - had;
            quanta
        };
        users.by_name.iter().map(quanta).collect()
    }
}
