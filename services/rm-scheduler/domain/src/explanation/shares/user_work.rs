//! The work that a round reports, grouped by class and user.

use std::sync::Arc;

use super::user_totals::UserTotals;
use crate::{
    ids::{ClassIx, WorkIx},
    output::plan::UserWorkCount,
    state::RoundState,
};

/// Position that stands for no group, because the work has no class.
const NO_GROUP: u32 = u32::MAX;

/// Groups of reported work, one for each class and user.
pub(crate) struct UserWork(Vec<Group>);

struct Group {
    class: ClassIx,
    /// Any piece of work of the group, from which the user is read.
    work: WorkIx,
    work_count: usize,
    /// Index in the sorted list at which the next piece of work of this group is written.
    next: usize,
}

impl UserWork {
    /// Sorts the work so that the work of one user in one class is adjacent. Work without a class
    /// comes last.
    pub fn group<T: Copy>(
        state: &RoundState,
        user_totals: &mut UserTotals,
        all: &mut Vec<T>,
        work_of: impl Fn(&T) -> WorkIx,
    ) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let position = |item: &T| {
            let work = work_of(item);
            let Some(class) = state.work[work].class else {
                return NO_GROUP;
            };
            let sum = user_totals
                .class_mut(class)
                .user_mut(state.work_record(work).user);
            let position = *sum.reported_position.get_or_insert_with(|| {
                groups.push(Group::new(class, work));
                u32::try_from(groups.len() - 1).unwrap_or(NO_GROUP)
            });
            groups[position as usize].work_count += 1;
            position
        };
        let positions: Vec<u32> = all.iter().map(position).collect();
        let mut end = 0;
        for group in &mut groups {
            group.next = end;
            end += group.work_count;
        }
        let mut sorted = all.clone();
        for (position, it) in positions.into_iter().zip(&*all) {
            let group = groups.get_mut(position as usize);
            let next = group.map_or(&mut end, |group| &mut group.next);
            sorted[*next] = *it;
            *next += 1;
        }
        *all = sorted;
        Self(groups)
    }

    /// Returns the groups, in the order of the sorted work.
    pub fn into_groups(self, state: &RoundState) -> Vec<UserWorkCount> {
        let users = self.0.into_iter().map(|group| UserWorkCount {
            class: Arc::clone(&state.index.classes[group.class].name),
            user: state.work_record(group.work).user_name.clone(),
            work_count: group.work_count,
        });
        users.collect()
    }
}

impl Group {
    fn new(class: ClassIx, work: WorkIx) -> Self {
        Self {
            class,
            work,
            work_count: 0,
            next: 0,
        }
    }
}
