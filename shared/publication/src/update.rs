//! The response of a publication: everything, or the changes since a cursor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Seconds one poll of a follower waits. After two waits of silence a follower is stale.
pub const WAIT_SECONDS: u64 = 10;

/// `{ cursor, full, changed, removed }`. A full update holds every entry there is; whatever it does
/// not name is gone. A delta holds the last state of each entry that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Update<T> {
    /// Ask again with this.
    pub cursor: String,
    pub full: bool,
    pub changed: BTreeMap<String, T>,
    #[serde(default)]
    pub removed: Vec<String>,
}

impl<T> Update<T> {
    /// True when it says nothing but "I am alive".
    pub fn is_empty(&self) -> bool {
        !self.full && self.changed.is_empty() && self.removed.is_empty()
    }
}
