//! The response of a publication: all entries, or the changes since a cursor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Wait of one poll of a follower, in seconds. A follower without a response for two waits is
/// stale.
pub const WAIT_SECONDS: u64 = 10;

/// `{ cursor, full, changed, removed }`. A full update has all entries; an entry that is not in it
/// does not exist. A delta has the last state of each changed entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Update<T> {
    /// Position after this update; the `since` of the next request.
    pub cursor: String,
    pub full: bool,
    pub changed: BTreeMap<String, T>,
    #[serde(default)]
    pub removed: Vec<String>,
}

impl<T> Update<T> {
    /// Returns true if the update has no changes and only proves that the publisher is alive.
    pub fn is_empty(&self) -> bool {
        !self.full && self.changed.is_empty() && self.removed.is_empty()
    }
}
