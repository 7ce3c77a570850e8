//! Counts of all users in all classes, retained from round to round.

pub(crate) use super::work_groups::Quanta;
pub(super) use super::{
    user_count::UserCount,
    work_groups::{Slot, Slots},
};
use crate::{index::WorkListEdit, state::RoundState};

#[derive(Default)]
pub(crate) struct UserCounts {
    by_class: Vec<ClassUsers>,
    pub(super) slots: Slots,
}

/// Users of one class.
#[derive(Default)]
pub(super) struct ClassUsers {
    /// Counts by number of the user. Some users have no work in the class.
    counts: Vec<UserCount>,
    /// Position of the user's name among users with work, by number of the user.
    name_positions: Vec<Option<usize>>,
    /// Numbers of the users with work, in the order of their names.
    by_name: Vec<usize>,
    /// True while the set of users with work is unchanged.
    is_current: bool,
}

impl ClassUsers {
    fn update_names(&mut self, state: &RoundState, class: usize) {
        let by_name = state.classes[class].users.numbers();
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

    /// Returns the users by number, each with its number and the position of its name.
    pub fn each_mut(&mut self) -> impl Iterator<Item = ((usize, usize), &mut UserCount)> {
        let all = self.counts.iter_mut().zip(&self.name_positions).enumerate();
        all.filter_map(|(user, (user_count, position))| {
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
    users: usize,
    /// Quanta before and after, by class and user.
    by_user: Vec<(u128, u128)>,
}

impl HoldingsChange {
    pub fn new(state: &RoundState) -> Self {
        let users = state.index.user_count();
        let mut by_user = vec![(0, 0); state.classes.len() * users];
        for work in state.work.touched() {
            let work_state = &state.work[work];
            let (had, has) = (work_state.had, work_state.has());
            if let Some(class) = work_state.class.filter(|_| had != has) {
                let of_user = &mut by_user[class * users + state.work_record(work).user];
                of_user.0 += u128::from(had.saturating_mul(work_state.process_quanta));
                of_user.1 += u128::from(has.saturating_mul(work_state.process_quanta));
            }
        }
        Self { users, by_user }
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

    pub(super) fn take(&mut self, state: &RoundState, class: usize) -> ClassUsers {
        if self.by_class.len() <= class {
            self.by_class.resize_with(class + 1, ClassUsers::default);
        }
        let mut users = std::mem::take(&mut self.by_class[class]);
        users.update_names(state, class);
        users
    }

    pub(super) fn put_back(&mut self, class: usize, users: ClassUsers) {
        self.by_class[class] = users;
    }

    /// Returns the demand and holdings of the users of a class after all decisions, in the order of
    /// their names.
    pub fn quanta(&self, class: usize, moved: &HoldingsChange) -> Vec<Quanta> {
        let users = &self.by_class[class];
        let quanta = |user: &usize| {
            let mut quanta = users.counts[*user].quanta();
            let (had, has) = moved.by_user[class * moved.users + user];
            quanta.has = quanta.has + has - had;
            quanta
        };
        users.by_name.iter().map(quanta).collect()
    }
}
