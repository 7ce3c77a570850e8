//! The output of all containers of one work item.

use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ContainerEntry;

/// `GET /v1/logs/{work}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkLogs {
    /// In order of arrival; those of one container in the order it wrote them.
    pub pieces: Vec<WorkPiece>,
    /// Ended containers whose output is complete with this answer. Each is listed once per cursor.
    pub ended: Vec<ContainerEntry>,
    /// Containers that have not ended.
    pub live: u64,
    /// Number of older containers that were left out.
    pub left_out: u64,
    /// The `cursor` of the next request.
    pub cursor: String,
}

/// A piece of output of one container; both streams, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkPiece {
    pub container: AllocationId,
    /// Includes the instance of a service.
    pub work: WorkId,
    pub node: NodeName,
    /// Time of arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Bytes of output of the container before this piece.
    pub offset: u64,
    /// Bytes directly before it that are no longer stored.
    #[serde(default, skip_serializing_if = "is_none")]
    pub missed_bytes: u64,
    pub text: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}
