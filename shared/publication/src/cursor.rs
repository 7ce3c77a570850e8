//! A position in a service's history: lineage and revision. Opaque to readers.

use std::fmt;

use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Names the history; a database that was recreated has another one.
    pub lineage: Uuid,
    pub revision: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.lineage.simple(), self.revision)
    }
}

impl Cursor {
    /// What cannot be read is treated like an absent cursor: the answer is full.
    pub fn parse(text: &str) -> Option<Self> {
        let (lineage, revision) = text.split_once('-')?;
        Some(Self {
            lineage: Uuid::try_parse(lineage).ok()?,
            revision: revision.parse().ok()?,
        })
    }
}
