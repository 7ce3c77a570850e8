//! Status, phase, reason and destination of a placement. The API and the rows use the same names.

use std::fmt;

use hayward_vocabulary::NodeName;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Queued.
    Created,
    Accepted,
    InProgress,
    Succeeded,
    Failed,
    BadRequest,
}

impl Status {
    pub fn is_active(self) -> bool {
        matches!(self, Self::Accepted | Self::InProgress)
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::BadRequest)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Accepted => "ACCEPTED",
            Self::InProgress => "IN_PROGRESS",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::BadRequest => "BAD_REQUEST",
        }
    }
}

/// Progress of the affected process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    Running,
    StopInProgress,
    Stopped,
    StopFailed,
}

/// Reason why a placement failed or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    RequestExpired,
    StopFailed,
    LaunchFailed,
    ConstraintAtLaunch,
    DestinationBlocked,
    ManagerRestarted,
    JobEnded,
    UnknownProcessor,
    StaleDeployment,
    StandbyConstraint,
    NotAListedMachine,
    NotRunning,
    NoStandby,
    PoolManaged,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestExpired => "REQUEST_EXPIRED",
            Self::StopFailed => "STOP_FAILED",
            Self::LaunchFailed => "LAUNCH_FAILED",
            Self::ConstraintAtLaunch => "CONSTRAINT_AT_LAUNCH",
            Self::DestinationBlocked => "DESTINATION_BLOCKED",
            Self::ManagerRestarted => "MANAGER_RESTARTED",
            Self::JobEnded => "JOB_ENDED",
            Self::UnknownProcessor => "UNKNOWN_PROCESSOR",
            Self::StaleDeployment => "STALE_DEPLOYMENT",
            Self::StandbyConstraint => "STANDBY_CONSTRAINT",
            Self::NotAListedMachine => "NOT_A_LISTED_MACHINE",
            Self::NotRunning => "NOT_RUNNING",
            Self::NoStandby => "NO_STANDBY",
            Self::PoolManaged => "POOL_MANAGED",
        }
    }
}

/// Reason why a request is still queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum QueueReason {
    /// Another action of the processor is in flight.
    SelfInFlight,
    /// An action of its active is in flight.
    ActiveInFlight,
    /// An action of one of its standbys is in flight.
    StandbyInFlight,
    /// The processor has not started yet.
    NotRunningYet,
}

/// Target host of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Destination {
    Host(NodeName),
    AnyHost,
    LastSeen,
    ForceRestartLastSeen,
    Standby,
}

pub const ANY_HOST: &str = "ANY_HOST";
const KEYWORDS: [&str; 4] = [ANY_HOST, "LAST_SEEN", "FORCE_RESTART_LAST_SEEN", "STANDBY"];

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            ANY_HOST => Ok(Self::AnyHost),
            "LAST_SEEN" => Ok(Self::LastSeen),
            "FORCE_RESTART_LAST_SEEN" => Ok(Self::ForceRestartLastSeen),
            "STANDBY" => Ok(Self::Standby),
            _ => match NodeName::new(text) {
                Ok(host) => Ok(Self::Host(host)),
                Err(error) => Err(format!("{error}; or one of {}", KEYWORDS.join(", "))),
            },
        }
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host(host) => host.as_str(),
            Self::AnyHost => ANY_HOST,
            Self::LastSeen => KEYWORDS[1],
            Self::ForceRestartLastSeen => KEYWORDS[2],
            Self::Standby => KEYWORDS[3],
        })
    }
}
