//! Sums of the shares of work, by class and user. They are retained from round to round.

use crate::{
    ids::{ClassIx, Ix, TypedVec, UserIx},
    output::plan::Tally,
    state::RoundState,
};

/// Sums by class, then user. A round updates them only for the work that it reports.
#[derive(Default)]
pub(crate) struct UserTotals {
    classes: TypedVec<ClassIx, ClassTotals>,
    /// Pairs of class and user that lost their last work. They may have new work since then.
    emptied: Vec<(ClassIx, UserIx)>,
}

/// Sums of the users of one class.
#[derive(Default)]
pub(super) struct ClassTotals {
    /// Sums by user.
    pub users: TypedVec<UserIx, UserTotal>,
    /// Users of the class, in the order of their names.
    pub by_name: Vec<UserIx>,
    /// True if a user joined or left the class since `by_name` was written.
    pub users_changed: bool,
}

/// Sum of the work of one user in one class.
#[derive(Default)]
pub(super) struct UserTotal {
    pub tally: Tally,
    /// Number of pieces of work in the sum.
    work_count: usize,
    /// True if the user is in the list of users of the class.
    is_listed: bool,
    /// Position of the user's group among the groups of reported work (see `user_work.rs`). `None`
    /// if this round reports no work of the user.
    pub reported_position: Option<u32>,
}

impl UserTotals {
    pub fn new(state: &RoundState) -> Self {
        let mut user_totals = Self::default();
        user_totals
            .classes
            .resize_with(state.classes.len(), ClassTotals::default);
        user_totals
    }

    /// Adds one piece of work of this class and user.
    pub fn add(&mut self, class: ClassIx, user: UserIx, tally: &Tally) {
        let class_totals = &mut self.classes[class];
        let sum = class_totals.user_mut(user);
        let was_listed = std::mem::replace(&mut sum.is_listed, true);
        sum.work_count += 1;
        sum.tally.add(tally);
        class_totals.users_changed |= !was_listed;
    }

    /// Removes one piece of work that was added before.
    pub fn remove(&mut self, class: ClassIx, user: UserIx, tally: &Tally) {
        let sum = &mut self.classes[class].users[user];
        sum.tally.remove(tally);
        sum.work_count -= 1;
        if sum.work_count == 0 {
            self.emptied.push((class, user));
        }
    }

    /// Removes users without work from their class.
    pub fn drop_emptied(&mut self) {
        for (class, user) in self.emptied.drain(..) {
            let class_totals = &mut self.classes[class];
            let sum = &mut class_totals.users[user];
            if sum.work_count == 0 && std::mem::take(&mut sum.is_listed) {
                class_totals.users_changed = true;
            }
        }
    }

    pub(super) fn class_mut(&mut self, class: ClassIx) -> &mut ClassTotals {
        &mut self.classes[class]
    }
}

impl ClassTotals {
    pub fn user_mut(&mut self, user: UserIx) -> &mut UserTotal {
        if self.users.len() <= user.index() {
            self.users.resize_with(user.index() + 1, UserTotal::default);
        }
        &mut self.users[user]
    }
}
