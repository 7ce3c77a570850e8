//! Gives each user a number. The agents compute accounts of programs from it, so a number is never
//! given to a second user (TC-22).

use std::collections::BTreeMap;

use hayward_vocabulary::UserName;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserNumbers {
    by_user: BTreeMap<UserName, u32>,
    /// Smallest number that no user ever had.
    next: u32,
}

/// Number of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserNumber {
    /// The user had it before.
    Known(u32),
    /// The user has it from now on.
    New(u32),
}

impl UserNumber {
    pub fn number(self) -> u32 {
        match self {
            Self::Known(number) | Self::New(number) => number,
        }
    }
}

impl UserNumbers {
    /// Restores a number of a user. A retired number only counts as used.
    pub fn restore(&mut self, user: UserName, number: u32, retired: bool) {
        self.next = self.next.max(number.saturating_add(1));
        if !retired {
            self.by_user.insert(user, number);
        }
    }

    pub fn known(&self, user: &UserName) -> Option<u32> {
        self.by_user.get(user).copied()
    }

    /// Returns the number of a user, and gives one to a user without.
    pub fn number_of(&mut self, user: &UserName) -> UserNumber {
        if let Some(number) = self.known(user) {
            return UserNumber::Known(number);
        }
        let number = self.next;
        self.next = number.saturating_add(1);
        self.by_user.insert(user.clone(), number);
        UserNumber::New(number)
    }

    /// Takes the number of a user away. It is not given again.
    pub fn retire(&mut self, user: &UserName) -> Option<u32> {
        self.by_user.remove(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserName {
        name.parse().unwrap()
    }

    #[test]
    fn each_user_gets_one_number_counted_from_zero() {
        let mut numbers = UserNumbers::default();
        assert_eq!(numbers.number_of(&user("ada")), UserNumber::New(0));
        assert_eq!(numbers.number_of(&user("ben")), UserNumber::New(1));
        assert_eq!(numbers.number_of(&user("ada")), UserNumber::Known(0));
        assert_eq!(numbers.known(&user("cy")), None);
    }

    #[test]
    fn a_retired_number_is_never_given_again() {
        let mut numbers = UserNumbers::default();
        numbers.restore(user("ada"), 4, false);
        numbers.restore(user("eve"), 7, true);
        assert_eq!(numbers.known(&user("eve")), None);
        assert_eq!(numbers.number_of(&user("eve")), UserNumber::New(8));
        assert_eq!(numbers.retire(&user("eve")), Some(8));
        assert_eq!(numbers.number_of(&user("eve")).number(), 9);
    }
}
