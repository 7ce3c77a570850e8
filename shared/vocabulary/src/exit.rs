//! How a container ended, and the cause (W15).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// The fixed list of causes. Only user causes may spend a user's retry budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// The program ended by itself with status 0.
    Success,
    /// The program ended by itself with another status, or by its own signal.
    UserError,
    /// The program exceeded one of its limits, for example of memory.
    UserLimit,
    /// The program could not be started, for example because the file or image does not exist.
    LaunchFailed,
    /// The node was lost, or rebooted, or its agent lost the process.
    Node,
    /// Hayward ended the program, for example for a preemption, a cancellation or a block.
    Intended,
    /// It is not known whether the program ever started. It is not started again (I3).
    LaunchUnknown,
    /// A cause of a newer agent.
    #[serde(other)]
    Unknown,
}

impl ExitCause {
    /// True if the user's program caused the end, and not the fleet.
    pub fn is_user_caused(self) -> bool {
        matches!(
            self,
            Self::Success | Self::UserError | Self::UserLimit | Self::LaunchFailed
        )
    }
}

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    pub cause: ExitCause,
    /// The class of a cause that lies with the node: `disk_full`, `read_only_fs`, `image_pull`,
    /// `device_error`, `runtime_down`; or `not_offered` if the node does not offer what the work
    /// needs. The list is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause_code: Option<String>,
    /// Exit status, when the program returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Number of the signal that ended the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time of the end by the clock of the node. It is shown to people and never compared (R4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl Exit {
    pub fn of(cause: ExitCause, message: impl Into<String>) -> Self {
        Self {
            cause,
            cause_code: None,
            code: None,
            signal: None,
            message: Some(message.into()),
            ended_at: None,
        }
    }
}
