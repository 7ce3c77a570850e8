//! The users of a class with their work, ordered by name and found by number.

use hayward_vocabulary::UserName;

use crate::{collections::id_list::IdList, ids::WorkIx};

#[derive(Default)]
pub(crate) struct Users {
    /// Users, in the order of their names.
    rows: Vec<User>,
    /// Position in `rows`, by number of the user.
    positions: Vec<Option<u32>>,
}

struct User {
    name: UserName,
    number: usize,
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

    /// Returns the numbers of the users, in the order of their names.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|user| user.number)
    }

    pub fn values(&self) -> impl Iterator<Item = &IdList<WorkIx>> {
        self.rows.iter().map(|user| &user.work)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&UserName, &IdList<WorkIx>)> {
        self.rows.iter().map(|user| (&user.name, &user.work))
    }

    pub fn contains_key(&self, name: &UserName) -> bool {
        self.place_by_name(name).is_ok()
    }

    pub fn name(&self, number: usize) -> Option<&UserName> {
        let position = self.place(number)?;
        Some(&self.rows[position].name)
    }

    pub fn get(&self, number: usize) -> Option<&IdList<WorkIx>> {
        let position = self.place(number)?;
        Some(&self.rows[position].work)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut IdList<WorkIx>> {
        let position = self.place(number)?;
        Some(&mut self.rows[position].work)
    }

    /// Adds a user that had no work so far.
    pub(super) fn insert(&mut self, name: UserName, number: usize, work: IdList<WorkIx>) {
        let position = self
            .place_by_name(&name)
            .unwrap_or_else(|position| position);
        let user = User { name, number, work };
        self.rows.insert(position, user);
        if self.positions.len() <= number {
            self.positions.resize(number + 1, None);
        }
        self.number_from(position);
    }

    /// Removes a user without work.
    pub(super) fn remove(&mut self, number: usize) {
        if let Some(position) = self.place(number) {
            self.rows.remove(position);
            self.positions[number] = None;
            self.number_from(position);
        }
    }

    fn number_from(&mut self, position: usize) {
        for (user, at) in self.rows.iter().zip(0..).skip(position) {
            self.positions[user.number] = Some(at);
        }
    }

    fn place(&self, number: usize) -> Option<usize> {
        let position = self.positions.get(number).copied().flatten();
        position.map(|position| position as usize)
    }

    fn place_by_name(&self, name: &UserName) -> Result<usize, usize> {
        self.rows.binary_search_by(|user| user.name.cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ix;

    #[test]
    fn users_are_sorted_by_name_and_found_by_number() {
        let mut users = Users::default();
        let names = ["m", "z", "a", "q"].map(|name| name.parse::<UserName>().unwrap());
        for (number, name) in names.iter().enumerate() {
            users.insert(
                name.clone(),
                number,
                IdList::from_iter([WorkIx::new(10 + number)]),
            );
        }
        users.remove(0);
        users.remove(7);
        assert!(users.keys().map(UserName::as_str).eq(["a", "q", "z"]));
        let found =
            [0, 1, 2, 3, 9].map(|number| users.get(number).and_then(IdList::first).map(Ix::index));
        assert_eq!(found, [None, Some(11), Some(12), Some(13), None]);
        assert!(users.contains_key(&names[1]) && !users.contains_key(&names[0]));
        users.insert(names[0].clone(), 0, IdList::from_iter([WorkIx::new(5)]));
        assert!(
            users
                .values()
                .flat_map(IdList::iter)
                .map(Ix::index)
                .eq([12, 5, 13, 11])
        );
    }
}
