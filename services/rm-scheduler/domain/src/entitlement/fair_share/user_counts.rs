//! Counts of all users in all classes, retained from round to round.

pub(crate) use super::work_groups::Quanta;
pub(super) use super::{
    user_count::UserCount,
    work_groups::{Slot, Slots},
};
use crate::{
    ids::{ClassIx, Ix, TypedVec, UserIx},
    index::WorkListEdit,
    state::RoundState,
};

#[derive(Default)]
pub(crate) struct UserCounts {
    by_class: TypedVec<ClassIx, ClassUsers>,
    pub(super) slots: Slots,
}

/// Users of one class.
#[derive(Default)]
pub(super) struct ClassUsers {
    /// Counts by user. Some users have no work in the class.
    counts: TypedVec<UserIx, UserCount>,
    /// Position of the user's name among users with work, by user.
    name_positions: TypedVec<UserIx, Option<usize>>,
    /// Users with work, in the order of their names.
    by_name: Vec<UserIx>,
    /// True while the set of users with work is unchanged.
    is_current: bool,
}

impl ClassUsers {
    fn update_names(&mut self, state: &RoundState, class: ClassIx) {
        let by_name = state.classes[class].users.indices();
        if self.is_current {
            #[cfg(test)]
            assert!(by_name.eq(self.by_name.iter().copied()));
            return;
        }
        let users = state.index.user_count();
        if self.counts.len() < users {
            self.counts.resize_with(users, UserCount::default);
        }
        self.by_name.clear();
        self.by_name.extend(by_name);
        self.name_positions.clear();
        self.name_positions.resize(self.counts.len(), None);
        for (position, user) in self.by_name.iter().enumerate() {
            self.name_positions[*user] = Some(position);
        }
        self.is_current = true;
    }

    /// Returns the count of the user whose name has this position.
    pub fn at(&self, position: usize) -> &UserCount {
        &self.counts[self.by_name[position]]
    }

    pub fn by_name(&self) -> impl Iterator<Item = &UserCount> {
        self.by_name.iter().map(|user| &self.counts[*user])
    }

    /// Returns the users in ascending order, each with the position of its name.
    pub fn each_mut(&mut self) -> impl Iterator<Item = ((UserIx, usize), &mut UserCount)> {
        let positions = self.name_positions.enumerate();
        let all = self.counts.iter_mut().zip(positions);
        all.filter_map(|(user_count, (user, position))| {
            position.map(|position| ((user, position), user_count))
        })
    }

    fn apply_edit(&mut self, splice: &WorkListEdit, slots: &mut Slots) {
        let Some(user_count) = self.counts.get_mut(splice.user) else {
            self.is_current = false;
            return;
        };
        let had_some = user_count.has_some();
        user_count.splice(splice, slots);
        self.is_current &= had_some && user_count.has_some();
    }
}

/// Change of the quanta of users, from work whose processes changed in this round.
pub(crate) struct HoldingsChange {
    /// Quanta before and after, by class and user.
    by_user: TypedVec<ClassIx, TypedVec<UserIx, (u128, u128)>>,
}

impl HoldingsChange {
    pub fn new(state: &RoundState) -> Self {
        let users = TypedVec::filled((0, 0), state.index.user_count());
        let mut by_user = TypedVec::filled(users, state.classes.len());
        for work in state.work.touched() {
            let work_state = &state.work[work];
            let (had, has) = (work_state.process_count_before, work_state.process_count());
            if let Some(class) = work_state.class.filter(|_| had != has) {
                let of_user = &mut by_user[class][state.work_record(work).user];
                of_user.0 += u128::from(had.saturating_mul(work_state.process_quanta));
                of_user.1 += u128::from(has.saturating_mul(work_state.process_quanta));
            }
        }
        Self { by_user }
    }
}

impl UserCounts {
    pub fn apply_edits(&mut self, splices: &[WorkListEdit]) {
        let mut left = splices;
        while let [splice, rest @ ..] = left {
            left = rest;
            // Most changes remove an item and insert it at the same position.
            if let [next, after @ ..] = rest
                && splice.is_undone_by(next)
            {
                left = after;
                continue;
            }
            if let Some(users) = self.by_class.get_mut(splice.class) {
                users.apply_edit(splice, &mut self.slots);
            }
        }
    }

    pub(super) fn take(&mut self, state: &RoundState, class: ClassIx) -> ClassUsers {
        if self.by_class.len() <= class.index() {
            self.by_class
                .resize_with(class.index() + 1, ClassUsers::default);
        }
        let mut users = std::mem::take(&mut self.by_class[class]);
        users.update_names(state, class);
        users
    }

    pub(super) fn put_back(&mut self, class: ClassIx, users: ClassUsers) {
        self.by_class[class] = users;
    }

    /// Returns the demand and holdings of the users of a class after all decisions, in the order of
    /// their names.
    pub fn quanta(&self, class: ClassIx, moved: &HoldingsChange) -> Vec<Quanta> {
        let users = &self.by_class[class];
        let quanta = |user: &UserIx| {
            let mut quanta = users.counts[*user].quanta();
            let (had, has) = moved.by_user[class][*user];
            quanta.has = quanta.has + has - had;
            quanta
        };
        users.by_name.iter().map(quanta).collect()
    }
}
