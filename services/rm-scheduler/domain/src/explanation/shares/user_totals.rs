//! What the shares of work come to for each user.

use crate::{output::plan::Tally, state::RoundState};

/// Kept from round to round: a round looks only at work of which something else is to be said.
#[derive(Default)]
pub(crate) struct UserTotals {
    classes: Vec<OfClass>,
    /// Class and user of which no work was left while it was forgotten; some has come since.
    emptied: Vec<(usize, usize)>,
}

/// What the work of a class comes to.
#[derive(Default)]
pub(super) struct OfClass {
    /// By the number of the user.
    pub users: Vec<Sum>,
    /// Numbers of its users, by name.
    pub positions: Vec<usize>,
    /// Some user joined it or left it since these were listed.
    pub is_other: bool,
}

#[derive(Default)]
pub(super) struct Sum {
    pub tally: Tally,
    /// Pieces of work in it.
    work: usize,
    /// The user is among those of the class.
    is_listed: bool,
    /// Something is said anew of one of them: the place of its user among those of whom something
    /// is.
    pub said_at: Option<u32>,
}

impl UserTotals {
    pub fn of(state: &RoundState) -> Self {
        let mut user_totals = Self::default();
        user_totals
            .classes
            .resize_with(state.classes.len(), OfClass::default);
        user_totals
    }

    /// Counts work for this class and user.
    pub fn count(&mut self, (class, user_at): (u32, u32), tally: &Tally) {
        let of_class = &mut self.classes[class as usize];
        let sum = of_class.user(user_at as usize);
        let was_listed = std::mem::replace(&mut sum.is_listed, true);
        sum.work += 1;
        sum.tally.add(tally);
        of_class.is_other |= !was_listed;
    }

    /// Takes out what was counted.
    pub fn forget(&mut self, (class, user_at): (u32, u32), tally: &Tally) {
        let (class, user_at) = (class as usize, user_at as usize);
        let sum = &mut self.classes[class].users[user_at];
        sum.tally.remove(tally);
        sum.work -= 1;
        if sum.work == 0 {
            self.emptied.push((class, user_at));
        }
    }

    /// Users of whom nothing is left are none of their class any more.
    pub fn drop_emptied(&mut self) {
        for (class, user_at) in self.emptied.drain(..) {
            let of_class = &mut self.classes[class];
            let sum = &mut of_class.users[user_at];
            if sum.work == 0 && std::mem::take(&mut sum.is_listed) {
                of_class.is_other = true;
            }
        }
    }

    /// What was counted apart is counted here as well.
    pub fn add(&mut self, other: &Self) {
        for (of_class, other) in self.classes.iter_mut().zip(&other.classes) {
            for (user_at, other) in other.users.iter().enumerate() {
                let sum = of_class.user(user_at);
                sum.tally.add(&other.tally);
                sum.work += other.work;
                sum.is_listed |= other.is_listed;
            }
            of_class.is_other |= other.is_other;
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
