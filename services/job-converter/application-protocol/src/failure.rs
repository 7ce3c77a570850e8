//! Why an application or a task failed, and the messages with which the core reports the reason.
//! The text constants below are the first words of these messages.

use serde::{Deserialize, Serialize};

/// The gang was not complete in time.
pub const GANG_TIMEOUT: &str = "ResourceReservationTimeout";
/// The core refused the application.
pub const REJECTED: &str = "ApplicationRejected";
/// A complete gang lost members and was not repaired.
pub const GANG_SHORT: &str = "GangBelowMinimum";
/// The application ended without a successful task.
pub(crate) const NOTHING_COMPLETED: &str = "NothingCompleted";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The gang was not complete in time.
    GangTimeout,
    /// A complete gang lost members and is below its minimum.
    GangShort,
    /// The core refused the application.
    Rejected,
    /// Tasks only: the core refused the request for the space of the task.
    AskRejected,
    /// Tasks only: the program ended with a status other than 0.
    Exited,
    /// Tasks only: the program could not be started.
    CannotStart,
    /// The application ended without a successful task.
    NothingCompleted,
    /// The owner reported the failure.
    Reported,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: FailureCode,
    pub message: String,
}

impl Failure {
    /// Creates a failure from the owner's text. Codes of the core in that text are ignored.
    pub(crate) fn from_owner(reason: Option<String>) -> Self {
        Self {
            code: FailureCode::Reported,
            message: reason.unwrap_or_else(|| "reported as failed by its owner".to_owned()),
        }
    }

    /// Parses a message of the core and the failure code in it.
    pub(crate) fn from_core_message(message: &str) -> Self {
        let codes = [
            (GANG_TIMEOUT, FailureCode::GangTimeout),
            (GANG_SHORT, FailureCode::GangShort),
            (REJECTED, FailureCode::Rejected),
            (NOTHING_COMPLETED, FailureCode::NothingCompleted),
        ];
        let code = codes.iter().find(|(text, _)| message.contains(text));
        Self {
            code: code.map_or(FailureCode::Reported, |(_, code)| *code),
            message: message.to_owned(),
        }
    }
}
