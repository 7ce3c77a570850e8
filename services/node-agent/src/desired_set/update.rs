//! An update of the desired set, and a position in it. The publisher's own types are in
//! `hayward_publication`, which depends on a database and is therefore not used here.

use std::collections::BTreeMap;
use std::fmt;

use hayward_container_manager_api::DesiredEntry;
use serde::Deserialize;

/// Response `{ cursor, full, changed, removed }` of a publication.
#[derive(Debug, Clone, Deserialize)]
pub struct Update {
    /// Position after this update.
    pub cursor: String,
    /// Whether `changed` is the whole desired set.
    pub full: bool,
    pub changed: BTreeMap<String, DesiredEntry>,
    #[serde(default)]
    pub removed: Vec<String>,
}

impl Update {
    /// Returns true if the update contains no change. A full set always counts as a change.
    pub fn is_empty(&self) -> bool {
        !self.full && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// A position in a publication: the lineage of a history, and a revision in it.
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

    pub fn is_same_history(&self, other: &Self) -> bool {
        self.lineage == other.lineage
    }

    /// Returns the newer of the two positions, or `self` if they are of different histories.
    pub fn newer_of(self, other: Self) -> Self {
        if self.is_before(&other) { other } else { self }
    }

    /// Returns whether the position is of the same history and older than `seen` (R9).
    pub fn is_before(&self, seen: &Self) -> bool {
        self.lineage == seen.lineage && self.revision < seen.revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_position_of_the_same_history_can_be_older() {
        let position = |cursor: &str| Position::parse(cursor).unwrap();
        assert!(position("a-4").is_before(&position("a-5")));
        assert!(!position("a-5").is_before(&position("a-5")));
        assert!(!position("b-4").is_before(&position("a-5")));
        assert_eq!(Position::parse("nonsense"), None);
    }
}
