//! What a round says of work, that of one user in one class together.

use hayward_vocabulary::WorkId;

use super::told::Told;
use crate::{
    books::Books,
    plan::{OfUser, WorkShare},
};

/// Stands for work that belongs to no class.
const NOWHERE: u32 = u32::MAX;

pub(crate) struct OfUsers {
    all: Vec<Group>,
    /// Where each piece of work belongs, in the order in which it is told of.
    places: Vec<u32>,
}

struct Group {
    class: usize,
    /// One of its pieces of work.
    at: usize,
    len: usize,
    said: Vec<(WorkId, WorkShare)>,
}

impl OfUsers {
    /// Sorts this work by user: as users have numbers, each says where the rest of its work is.
    pub fn of(books: &Books, told: &mut Told, work: impl Iterator<Item = usize>) -> Self {
        let mut all: Vec<Group> = Vec::new();
        let place = |at: usize| {
            let Some(class) = books.requests[at].class else {
                return NOWHERE;
            };
            let sum = told.class(class).user(books.demand(at).user_at);
            let place = *sum.said_at.get_or_insert_with(|| {
                all.push(Group {
                    class,
                    at,
                    len: 0,
                    said: Vec::new(),
                });
                u32::try_from(all.len() - 1).unwrap_or(NOWHERE)
            });
            all[place as usize].len += 1;
            place
        };
        let places = work.map(place).collect();
        Self { all, places }
    }

    /// Says this of the work that is told of as the nth.
    pub fn say(&mut self, nth: usize, id: &WorkId, share: &WorkShare) {
        if let Some(group) = self.all.get_mut(self.places[nth] as usize) {
            if group.said.is_empty() {
                group.said.reserve_exact(group.len);
            }
            group.said.push((id.clone(), *share));
        }
    }

    pub fn said(self, books: &Books) -> Vec<OfUser> {
        let said = self.all.into_iter().map(|group| OfUser {
            class: books.classes[group.class].name.to_owned(),
            user: books.demand(group.at).user.clone(),
            work: group.said,
        });
        said.collect()
    }
}
