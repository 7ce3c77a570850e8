//! The follower's half of a publication's answer, as the agent needs it: without the publisher's
//! half and its database.

use std::collections::BTreeMap;
use std::fmt;

use hayward_container_manager_api::DesiredEntry;
use serde::Deserialize;

/// `{ cursor, full, changed, removed }`, as every publication answers.
#[derive(Debug, Clone, Deserialize)]
pub struct Update {
    pub cursor: String,
    pub full: bool,
    pub changed: BTreeMap<String, DesiredEntry>,
    #[serde(default)]
    pub removed: Vec<String>,
}

impl Update {
    /// True when it says nothing but "I am alive".
    pub fn is_empty(&self) -> bool {
        !self.full && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// A position: which history, and how far in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    lineage: String,
    revision: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.lineage, self.revision)
    }
}

impl Position {
    pub fn parse(cursor: &str) -> Option<Self> {
        let (lineage, revision) = cursor.split_once('-')?;
        Some(Self {
            lineage: lineage.to_owned(),
            revision: revision.parse().ok()?,
        })
    }

    pub fn same_history(&self, other: &Self) -> bool {
        self.lineage == other.lineage
    }

    /// The newer of the two, where they can be compared.
    pub fn newer(self, other: Self) -> Self {
        if self.is_before(&other) { other } else { self }
    }

    /// R9: the same history, from before what was seen.
    pub fn is_before(&self, seen: &Self) -> bool {
        self.lineage == seen.lineage && self.revision < seen.revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r9_only_the_same_history_can_go_back() {
        let at = |cursor: &str| Position::parse(cursor).unwrap();
        assert!(at("a-4").is_before(&at("a-5")));
        assert!(!at("a-5").is_before(&at("a-5")));
        assert!(!at("b-4").is_before(&at("a-5")));
        assert_eq!(Position::parse("nonsense"), None);
    }
}
