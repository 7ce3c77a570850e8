//! A position in the history of a service: lineage and revision. Readers treat it as opaque.

use std::fmt;

use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Id of the history. A database that was created again has another id.
    pub lineage: Uuid,
    pub revision: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.lineage.simple(), self.revision)
    }
}

impl Cursor {
    /// Parses a cursor. Returns `None` for an invalid text, which leads to a full response like an
    /// absent cursor.
    pub fn parse(text: &str) -> Option<Self> {
        let (lineage, revision) = text.split_once('-')?;
        Some(Self {
            lineage: Uuid::try_parse(lineage).ok()?,
            revision: revision.parse().ok()?,
        })
    }
}
