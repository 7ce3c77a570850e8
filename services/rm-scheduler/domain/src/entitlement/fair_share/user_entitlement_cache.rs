//! Cache of the entitlements of all users in all classes, retained from round to round.

use super::holdings_change::HoldingsChange;
pub(crate) use super::work_groups::DemandAndHoldings;
pub(super) use super::{
    user_entitlement::UserEntitlement,
    work_groups::{Slot, Slots},
};
use crate::{
    ids::{ClassIx, Ix, TypedVec, UserIx},
    index::WorkListEdit,
    state::RoundState,
};

#[derive(Default)]
pub(crate) struct UserEntitlementCache {
    by_class: TypedVec<ClassIx, ClassUsers>,
    /// Position of each work item among the work of its user.
    pub(super) slots: Slots,
}

/// Users of one class.
#[derive(Default)]
pub(super) struct ClassUsers {
    /// Entitlements by user. Some users have no work in the class.
    entitlements: TypedVec<UserIx, UserEntitlement>,
    /// Position of the user's name among users with work, by user.
    name_positions: TypedVec<UserIx, Option<usize>>,
    /// Users with work, in the order of their names.
    by_name: Vec<UserIx>,
    /// True while the set of users with work is unchanged.
    is_current: bool,
}

impl ClassUsers {
    /// Reads the users with work again, if they changed.
    fn update_names(&mut self, state: &RoundState, class: ClassIx) {
        let by_name = state.classes[class].users.indices();
        if self.is_current {
            #[cfg(test)]
            assert!(by_name.eq(self.by_name.iter().copied()));
            return;
        }
        let user_count = state.index.user_count();
        if self.entitlements.len() < user_count {
            self.entitlements
                .resize_with(user_count, UserEntitlement::default);
        }
        self.by_name.clear();
        self.by_name.extend(by_name);
        self.name_positions.clear();
        self.name_positions.resize(self.entitlements.len(), None);
        for (position, user) in self.by_name.iter().enumerate() {
            self.name_positions[*user] = Some(position);
        }
        self.is_current = true;
    }

    /// Returns the entitlement of the user whose name has this position.
    pub fn at_name_position(&self, position: usize) -> &UserEntitlement {
        &self.entitlements[self.by_name[position]]
    }

    /// Returns the entitlements of the users with work, in the order of their names.
    pub fn by_name(&self) -> impl Iterator<Item = &UserEntitlement> {
        self.by_name.iter().map(|user| &self.entitlements[*user])
    }

    /// Returns the users in ascending order, each with the position of its name.
    pub fn users_mut(&mut self) -> impl Iterator<Item = ((UserIx, usize), &mut UserEntitlement)> {
        let positions = self.name_positions.enumerate();
        let all = self.entitlements.iter_mut().zip(positions);
        all.filter_map(|(user_entitlement, (user, position))| {
            position.map(|position| ((user, position), user_entitlement))
        })
    }

    fn apply_edit(&mut self, edit: &WorkListEdit, slots: &mut Slots) {
        let Some(user_entitlement) = self.entitlements.get_mut(edit.user) else {
            self.is_current = false;
            return;
        };
        let had_work = user_entitlement.has_work();
        user_entitlement.apply_edit(edit, slots);
        self.is_current &= had_work && user_entitlement.has_work();
    }
}

impl UserEntitlementCache {
    /// Applies insertions and removals of work since the last round.
    pub fn apply_edits(&mut self, edits: &[WorkListEdit]) {
        let mut remaining = edits;
        while let [edit, after_first @ ..] = remaining {
            remaining = after_first;
            // Most changes remove an item and insert it at the same position.
            if let [next, after_second @ ..] = after_first
                && edit.is_undone_by(next)
            {
                remaining = after_second;
                continue;
            }
            if let Some(users) = self.by_class.get_mut(edit.class) {
                users.apply_edit(edit, &mut self.slots);
            }
        }
    }

    /// Takes the users of a class out of the cache. The caller puts them back after the
    /// computation.
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
    pub fn totals_by_name(
        &self,
        class: ClassIx,
        change: &HoldingsChange,
    ) -> Vec<DemandAndHoldings> {
        let users = &self.by_class[class];
        let totals = |user: &UserIx| {
            let mut totals = users.entitlements[*user].totals();
            totals.holdings = change.apply(class, *user, totals.holdings);
            totals
        };
        users.by_name.iter().map(totals).collect()
    }
}
