//! The output of everything that ran for one piece of work, read together.

use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ContainerEntry;

/// `GET /v1/logs/{work}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkLogs {
    /// In the order they arrived; those of one container in the order it wrote them.
    pub pieces: Vec<WorkPiece>,
    /// Containers that ended and whose output was told up to here. Each is told once to a cursor.
    pub ended: Vec<ContainerEntry>,
    /// Containers that have not ended.
    pub live: u64,
    /// The oldest containers are left out where there are too many.
    pub left_out: u64,
    /// Go on from here.
    pub cursor: String,
}

/// A piece of what one of them wrote, both streams as they came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkPiece {
    pub container: AllocationId,
    /// With its instance, where it is one of a service.
    pub work: WorkId,
    pub node: NodeName,
    /// When it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Bytes its container had written before.
    pub offset: u64,
    /// Bytes right before it that are not kept.
    #[serde(default, skip_serializing_if = "is_none")]
    pub missed_bytes: u64,
    pub text: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}
