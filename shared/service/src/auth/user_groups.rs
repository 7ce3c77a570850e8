//! Groups of a user, from the token. Access lists, limits and placement rules of queues use them.
//!
//! A token with an invalid list is refused, because dropping a group could exempt the user from a
//! limit.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names of groups, sorted and without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Groups(Vec<String>);

/// An invalid list of groups.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGroups {
    #[error("{0} groups are more than the {max} a token carries", max = Groups::MAX_COUNT)]
    TooMany(usize),
    #[error(
        "group {0:?} must have 1 to {longest} characters, start with a letter, a digit or '_', \
         and use only these and '.', '@', ':', '/', '$' and '-'",
        longest = Groups::MAX_NAME_BYTES
    )]
    InvalidName(String),
}

impl Groups {
    pub const NONE: Self = Self(Vec::new());
    /// Maximum number of groups in a token. A token with the longest names fits into a header.
    pub const MAX_COUNT: usize = 32;
    /// Maximum length of a name, in bytes.
    pub const MAX_NAME_BYTES: usize = 128;

    /// Creates the groups from these names.
    ///
    /// # Errors
    /// If there are too many groups, or a name is invalid.
    pub fn new(mut names: Vec<String>) -> Result<Self, InvalidGroups> {
        if names.len() > Self::MAX_COUNT {
            return Err(InvalidGroups::TooMany(names.len()));
        }
        if let Some(invalid) = names.iter().find(|name| !is_valid_name(name)) {
            return Err(InvalidGroups::InvalidName(invalid.clone()));
        }
        names.sort_unstable();
        names.dedup();
        Ok(Self(names))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// Returns whether this is a valid name of a group. A policy uses `*` for all users, so `*` is not
/// valid.
fn is_valid_name(name: &str) -> bool {
    let has_valid_start = name.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_');
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "_.@:/$-".contains(it);
    has_valid_start && name.len() <= Groups::MAX_NAME_BYTES && name.chars().all(is_allowed)
}

impl TryFrom<Vec<String>> for Groups {
    type Error = InvalidGroups;
    fn try_from(names: Vec<String>) -> Result<Self, InvalidGroups> {
        Self::new(names)
    }
}

impl From<Groups> for Vec<String> {
    fn from(groups: Groups) -> Self {
        groups.0
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(names: &[&str]) -> Result<Groups, InvalidGroups> {
        Groups::new(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn groups_are_sorted_and_unique() {
        let sorted = groups(&["ops", "dev", "ops", "_a.b@c:d/e$f-1"]).unwrap();
        assert_eq!(sorted.names(), ["_a.b@c:d/e$f-1", "dev", "ops"]);
    }

    #[test]
    fn a_name_that_no_policy_can_contain_is_refused() {
        let longest = "x".repeat(Groups::MAX_NAME_BYTES);
        assert!(groups(&[&longest]).is_ok());
        let long = "x".repeat(Groups::MAX_NAME_BYTES + 1);
        for invalid in ["", "*", "-dev", "a b", "a,b", "dév", "a\0", long.as_str()] {
            let refused = groups(&["dev", invalid]);
            assert_eq!(refused, Err(InvalidGroups::InvalidName(invalid.to_owned())));
        }
    }

    #[test]
    fn the_number_of_groups_is_limited() {
        let names = |count: usize| (0..count).map(|it| format!("g{it}")).collect();
        assert!(Groups::new(names(Groups::MAX_COUNT)).is_ok());
        let refused = Groups::new(names(Groups::MAX_COUNT + 1));
        assert_eq!(refused, Err(InvalidGroups::TooMany(Groups::MAX_COUNT + 1)));
    }
}
