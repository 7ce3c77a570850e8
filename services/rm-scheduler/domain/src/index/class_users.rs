//! The users of a class with their work, ordered by name and found by index.

use hayward_vocabulary::UserName;

use crate::{
    collections::id_list::IdList,
    ids::{Ix, TypedVec, UserIx, WorkIx},
};

/// Users of one class that have work in it.
#[derive(Default)]
pub(crate) struct Users {
    /// Users, in the order of their names.
    rows: Vec<User>,
    /// Position in `rows`, by index of the user.
    positions: TypedVec<UserIx, Option<u32>>,
}

struct User {
    name: UserName,
    index: UserIx,
    /// Work by time and id. It is never empty.
    work: IdList<WorkIx>,
}

impl Users {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn keys(&self) -> impl Iterator<Item = &UserName> {
        self.rows.iter().map(|user| &user.name)
    }

    /// Returns the indices of the users, in the order of their names.
    pub fn indices(&self) -> impl Iterator<Item = UserIx> {
        self.rows.iter().map(|user| user.index)
    }

    pub fn values(&self) -> impl Iterator<Item = &IdList<WorkIx>> {
        self.rows.iter().map(|user| &user.work)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&UserName, &IdList<WorkIx>)> {
        self.rows.iter().map(|user| (&user.name, &user.work))
    }

    pub fn contains_key(&self, name: &UserName) -> bool {
        self.position_by_name(name).is_ok()
    }

    pub fn name(&self, user: UserIx) -> Option<&UserName> {
        let position = self.position(user)?;
        Some(&self.rows[position].name)
    }

    pub fn get(&self, user: UserIx) -> Option<&IdList<WorkIx>> {
        let position = self.position(user)?;
        Some(&self.rows[position].work)
    }

    pub(super) fn get_mut(&mut self, user: UserIx) -> Option<&mut IdList<WorkIx>> {
        let position = self.position(user)?;
        Some(&mut self.rows[position].work)
    }

    /// Adds a user that had no work so far.
    pub(super) fn insert(&mut self, name: UserName, user: UserIx, work: IdList<WorkIx>) {
        let position = self
            .position_by_name(&name)
            .unwrap_or_else(|position| position);
        let row = User {
            name,
            index: user,
            work,
        };
        self.rows.insert(position, row);
        if self.positions.len() <= user.index() {
            self.positions.resize(user.index() + 1, None);
        }
        self.update_positions(position);
    }

    /// Removes a user without work.
    pub(super) fn remove(&mut self, user: UserIx) {
        if let Some(position) = self.position(user) {
            self.rows.remove(position);
            self.positions[user] = None;
            self.update_positions(position);
        }
    }

    /// Updates the positions of the users from this position on.
    fn update_positions(&mut self, first: usize) {
        for (user, position) in self.rows.iter().zip(0..).skip(first) {
            self.positions[user.index] = Some(position);
        }
    }

    fn position(&self, user: UserIx) -> Option<usize> {
        let position = self.positions.get(user).copied().flatten();
        position.map(|position| position as usize)
    }

    fn position_by_name(&self, name: &UserName) -> Result<usize, usize> {
        self.rows.binary_search_by(|user| user.name.cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ix;

    #[test]
    fn users_are_sorted_by_name_and_found_by_index() {
        let mut users = Users::default();
        let names = ["m", "z", "a", "q"].map(|name| name.parse::<UserName>().unwrap());
        for (number, name) in names.iter().enumerate() {
            users.insert(
                name.clone(),
                UserIx::new(number),
                IdList::from_iter([WorkIx::new(10 + number)]),
            );
        }
        users.remove(UserIx::new(0));
        users.remove(UserIx::new(7));
        assert!(users.keys().map(UserName::as_str).eq(["a", "q", "z"]));
        let found = [0, 1, 2, 3, 9].map(|number| {
            users
                .get(UserIx::new(number))
                .and_then(IdList::first)
                .map(Ix::index)
        });
        assert_eq!(found, [None, Some(11), Some(12), Some(13), None]);
        assert!(users.contains_key(&names[1]) && !users.contains_key(&names[0]));
        users.insert(
            names[0].clone(),
            UserIx::new(0),
            IdList::from_iter([WorkIx::new(5)]),
        );
        assert!(
            users
                .values()
                .flat_map(IdList::iter)
                .map(Ix::index)
                .eq([12, 5, 13, 11])
        );
    }
}
