//! Sums of the shares of work, by class and user.

use crate::{
    ids::{ClassIx, Ix, TypedVec, UserIx},
    output::plan::Tally,
    state::RoundState,
};

/// Sums that are retained from round to round, so a round counts only the work that it reports.
#[derive(Default)]
pub(crate) struct UserTotals {
    classes: TypedVec<ClassIx, OfClass>,
    /// Pairs of class and user that lost their last work. They may have new work since then.
    emptied: Vec<(ClassIx, UserIx)>,
}

/// Sums of the users of one class.
#[derive(Default)]
pub(super) struct OfClass {
    /// Sums by user.
    pub users: TypedVec<UserIx, Sum>,
    /// Users of the class, in the order of their names.
    pub by_name: Vec<UserIx>,
    /// True if a user joined or left the class since `by_name` was written.
    pub is_other: bool,
}

#[derive(Default)]
pub(super) struct Sum {
    pub tally: Tally,
    /// Number of pieces of work in the sum.
    work: usize,
    /// True if the user is listed in the class.
    is_listed: bool,
    /// Position of the user's group in the work that this round reports. `None` if it reports none.
    pub reported_position: Option<u32>,
}

impl UserTotals {
    pub fn new(state: &RoundState) -> Self {
        let mut user_totals = Self::default();
        user_totals
            .classes
            .resize_with(state.classes.len(), OfClass::default);
        user_totals
    }

    /// Adds one piece of work of this class and user.
    pub fn count(&mut self, class: ClassIx, user: UserIx, tally: &Tally) {
        let of_class = &mut self.classes[class];
        let sum = of_class.user(user);
        let was_listed = std::mem::replace(&mut sum.is_listed, true);
        sum.work += 1;
        sum.tally.add(tally);
        of_class.is_other |= !was_listed;
    }

    /// Removes one piece of work that was added before.
    pub fn forget(&mut self, class: ClassIx, user: UserIx, tally: &Tally) {
        let sum = &mut self.classes[class].users[user];
        sum.tally.remove(tally);
        sum.work -= 1;
        if sum.work == 0 {
            self.emptied.push((class, user));
        }
    }

    /// Removes users without work from their class.
    pub fn drop_emptied(&mut self) {
        for (class, user) in self.emptied.drain(..) {
            let of_class = &mut self.classes[class];
            let sum = &mut of_class.users[user];
            if sum.work == 0 && std::mem::take(&mut sum.is_listed) {
                of_class.is_other = true;
            }
        }
    }

    pub(super) fn class(&mut self, class: ClassIx) -> &mut OfClass {
        &mut self.classes[class]
    }
}

impl OfClass {
    pub fn user(&mut self, user: UserIx) -> &mut Sum {
        if self.users.len() <= user.index() {
            self.users.resize_with(user.index() + 1, Sum::default);
        }
        &mut self.users[user]
    }
}
