//! What a round says of work, that of one user in one class together.

use std::sync::Arc;

use super::user_totals::UserTotals;
use crate::{output::plan::OfUser, state::RoundState};

/// Stands for work that belongs to no class.
const NOWHERE: u32 = u32::MAX;

pub(crate) struct UserWork(Vec<Group>);

struct Group {
    class: usize,
    /// One of its pieces of work.
    work: usize,
    pieces: usize,
    /// Where the next of them comes to stand.
    next: usize,
}

impl UserWork {
    /// Has the work of each user stand together, that of no class behind all. As users have
    /// numbers, each says where the rest of its work is.
    pub fn sort<T: Copy + Default>(
        state: &RoundState,
        user_totals: &mut UserTotals,
        work: &mut Vec<(usize, T)>,
    ) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let place = |(at, _): &(usize, T)| {
            let Some(class) = state.work[*at].class else {
                return NOWHERE;
            };
            let sum = user_totals.class(class).user(state.work_record(*at).user);
            let place = *sum.said_at.get_or_insert_with(|| {
                groups.push(Group::of(class, *at));
                u32::try_from(groups.len() - 1).unwrap_or(NOWHERE)
            });
            groups[place as usize].pieces += 1;
            place
        };
        let places: Vec<u32> = work.iter().map(place).collect();
        let mut end = 0;
        for group in &mut groups {
            group.next = end;
            end += group.pieces;
        }
        let mut sorted = vec![<(usize, T)>::default(); work.len()];
        for (place, it) in places.into_iter().zip(&*work) {
            let group = groups.get_mut(place as usize);
            let next = group.map_or(&mut end, |group| &mut group.next);
            sorted[*next] = *it;
            *next += 1;
        }
        *work = sorted;
        Self(groups)
    }

    /// In the order of the work.
    pub fn said(self, state: &RoundState) -> Vec<OfUser> {
        let said = self.0.into_iter().map(|group| OfUser {
            class: Arc::clone(&state.index.classes[group.class].name),
            user: state.work_record(group.work).user_name.clone(),
            pieces: group.pieces,
        });
        said.collect()
    }
}

impl Group {
    fn of(class: usize, at: usize) -> Self {
        Self {
            class,
            work: at,
            pieces: 0,
            next: 0,
        }
    }
}
