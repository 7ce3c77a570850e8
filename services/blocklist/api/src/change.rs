//! The feed `GET /v1/blocklist/changes`, for owners that keep a copy.

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::BlockEntry;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChangeKind {
    /// The key was free and is blocked now.
    Blocked,
    /// The key was blocked before; its action, end, cause or sources changed.
    Updated,
    /// The key is no longer blocked. A node may be on trial from now on.
    Unblocked,
    /// The trial of a node ended; the node was not blocked during it.
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
    /// Work succeeded on the node.
    Passed,
    /// No work ran on the node during the trial.
    Unused,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedChange {
    /// Revision of the change. Pass the greatest one as `after` in the next request.
    pub version: u64,
    pub kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ChangeReason>,
    pub at: Timestamp,
    /// The item after the change, or the last state of an item that ended.
    pub item: BlockEntry,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedChanges {
    /// In order of version. Changes of one version are never split over two answers.
    pub changes: Vec<FeedChange>,
    /// Value of `after` for the next request.
    pub version: u64,
}
