//! The output of all containers of one piece of work.

use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ContainerEntry;

/// Response of `GET /v1/logs/{work}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkLogs {
    /// Output in order of arrival. The output of one container is in the order of writing.
    #[serde(rename = "pieces")]
    pub chunks: Vec<WorkLogChunk>,
    /// Ended containers whose output is complete with this response. Each container is listed once
    /// per cursor.
    pub ended: Vec<ContainerEntry>,
    /// Number of containers that have not ended.
    pub live: u64,
    /// Number of older containers that were left out.
    pub left_out: u64,
    /// The `cursor` of the next request.
    pub cursor: String,
}

/// A chunk of output of one container. It has both streams, in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkPiece)]
pub struct WorkLogChunk {
    pub container: AllocationId,
    /// The work of the container, including the instance of a service.
    pub work: WorkId,
    pub node: NodeName,
    /// Time at which the output arrived. Absent if the output is no longer stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Number of bytes of output of the container before this chunk.
    pub offset: u64,
    /// Number of bytes directly before this chunk that are no longer stored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed_bytes: u64,
    pub text: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}
