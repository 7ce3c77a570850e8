//! The feed `GET /v1/blocklist/changes`, for owners that keep a copy.

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::BlockEntry;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChangeKind {
    /// The key was not blocked before.
    Blocked,
    /// The key was blocked before. Its action, end, cause or sources changed.
    Updated,
    /// The key is no longer blocked. If it is a node, it may be on trial from now on.
    Unblocked,
    /// The trial of a node ended without a block.
    TrialEnded,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChangeReason {
    /// The end of the item was reached.
    Expired,
    /// A caller removed the item.
    Removed,
    /// Work succeeded on the node on trial.
    Passed,
    /// No work ran on the node during the trial.
    Unused,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedChange {
    /// Revision of the change.
    pub version: u64,
    pub kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ChangeReason>,
    pub at: Timestamp,
    /// The item after the change. If the item has ended, its last state.
    pub item: BlockEntry,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedChanges {
    /// Changes in order of version. A response contains all changes of a version or none.
    pub changes: Vec<FeedChange>,
    /// Value of `after` for the next request.
    pub version: u64,
}
