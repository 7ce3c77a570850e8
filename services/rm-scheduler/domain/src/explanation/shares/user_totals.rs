//! Sums of the shares of work, by class and user.

use crate::{output::plan::Tally, state::RoundState};

/// Sums that are retained from round to round, so a round counts only the work that it reports.
#[derive(Default)]
pub(crate) struct UserTotals {
    classes: Vec<OfClass>,
    /// Pairs of class and user that lost their last work. They may have new work since then.
    emptied: Vec<(usize, usize)>,
}

/// Sums of the users of one class.
#[derive(Default)]
pub(super) struct OfClass {
    /// Sums by number of the user.
    pub users: Vec<Sum>,
    /// Numbers of the users of the class, in the order of their names.
    pub positions: Vec<usize>,
    /// True if a user joined or left the class since `positions` was written.
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
    pub fn count(&mut self, class: u32, user_at: u32, tally: &Tally) {
        let of_class = &mut self.classes[class as usize];
        let sum = of_class.user(user_at as usize);
        let was_listed = std::mem::replace(&mut sum.is_listed, true);
        sum.work += 1;
        sum.tally.add(tally);
        of_class.is_other |= !was_listed;
    }

    /// Removes one piece of work that was added before.
    pub fn forget(&mut self, class: u32, user_at: u32, tally: &Tally) {
        let (class, user_at) = (class as usize, user_at as usize);
        let sum = &mut self.classes[class].users[user_at];
        sum.tally.remove(tally);
        sum.work -= 1;
        if sum.work == 0 {
            self.emptied.push((class, user_at));
        }
    }

    /// Removes users without work from their class.
    pub fn drop_emptied(&mut self) {
        for (class, user_at) in self.emptied.drain(..) {
            let of_class = &mut self.classes[class];
            let sum = &mut of_class.users[user_at];
            if sum.work == 0 && std::mem::take(&mut sum.is_listed) {
                of_class.is_other = true;
            }
        }
    }

    pub(super) fn class(&mut self, class: usize) -> &mut OfClass {
        &mut self.classes[class]
    }
}

impl OfClass {
    pub fn user(&mut self, user_at: usize) -> &mut Sum {
        if self.users.len() <= user_at {
            self.users.resize_with(user_at + 1, Sum::default);
        }
        &mut self.users[user_at]
    }
}
