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
    /// It was blocked, and its action, end, cause or sources changed.
    Updated,
    /// It is blocked no more. A machine may be on trial from now on.
    Unblocked,
    /// The trial of a machine is over; it was not blocked during it.
    TrialEnded,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ChangeReason {
    /// Its end was reached.
    Expired,
    /// Somebody took it away.
    Removed,
    /// Something worked there.
    Passed,
    /// Nobody used the trial.
    Unused,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedChange {
    /// Ask for what came after with the greatest of these.
    pub version: u64,
    pub kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ChangeReason>,
    pub at: Timestamp,
    /// The item now, or as it was before it went.
    pub item: BlockEntry,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeedChanges {
    /// In order; those of one version are never torn apart.
    pub changes: Vec<FeedChange>,
    /// What to ask after next.
    pub version: u64,
}
