//! The work that a round reports, grouped by class and user.

use std::sync::Arc;

use super::user_totals::UserTotals;
use crate::{
    ids::{ClassIx, WorkIx},
    output::plan::OfUser,
    state::RoundState,
};

/// Group position that stands for work without a class.
const NOWHERE: u32 = u32::MAX;

pub(crate) struct UserWork(Vec<Group>);

struct Group {
    class: ClassIx,
    /// Any piece of work of the group.
    work: WorkIx,
    pieces: usize,
    /// Position of the next piece of the group in the sorted list.
    next: usize,
}

impl UserWork {
    /// Sorts the work so that the work of one user in one class is adjacent. Work without a class
    /// comes last.
    pub fn sort<T: Copy>(
        state: &RoundState,
        user_totals: &mut UserTotals,
        all: &mut Vec<T>,
        work_of: impl Fn(&T) -> WorkIx,
    ) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let place = |item: &T| {
            let work = work_of(item);
            let Some(class) = state.work[work].class else {
                return NOWHERE;
            };
            let sum = user_totals.class(class).user(state.work_record(work).user);
            let place = *sum.reported_position.get_or_insert_with(|| {
                groups.push(Group::new(class, work));
                u32::try_from(groups.len() - 1).unwrap_or(NOWHERE)
            });
            groups[place as usize].pieces += 1;
            place
        };
        let places: Vec<u32> = all.iter().map(place).collect();
        let mut end = 0;
        for group in &mut groups {
            group.next = end;
            end += group.pieces;
        }
        let mut sorted = all.clone();
        for (place, it) in places.into_iter().zip(&*all) {
            let group = groups.get_mut(place as usize);
            let next = group.map_or(&mut end, |group| &mut group.next);
            sorted[*next] = *it;
            *next += 1;
        }
        *all = sorted;
        Self(groups)
    }

    /// Returns the groups, in the order of the sorted work.
    pub fn said(self, state: &RoundState) -> Vec<OfUser> {
        let users = self.0.into_iter().map(|group| OfUser {
            class: Arc::clone(&state.index.classes[group.class].name),
            user: state.work_record(group.work).user_name.clone(),
            pieces: group.pieces,
        });
        users.collect()
    }
}

impl Group {
    fn new(class: ClassIx, work: WorkIx) -> Self {
        Self {
            class,
            work,
            pieces: 0,
            next: 0,
        }
    }
}
