//! Status, phase and reasons of a placement. The API and the rows use the same names.

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
    /// The request was invalid when it was served, and changed nothing.
    BadRequest,
}

impl Status {
    /// Returns whether the action on the request has started and has not ended.
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

/// Progress of the process that the action moves or restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    /// The process runs: before its stop is ordered, and after its successor has started.
    Running,
    StopInProgress,
    /// The process has ended, and its successor does not run yet.
    Stopped,
    /// The process did not end within the time limit.
    StopFailed,
}

/// Reason why a placement failed or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// No allocation was granted in time.
    RequestExpired,
    /// The process did not end in time.
    StopFailed,
    /// The successor ended before it was running.
    LaunchFailed,
    /// The granted host could not be used when the successor was to start.
    ConstraintAtLaunch,
    /// The requested host accepts no new processes.
    DestinationBlocked,
    /// container-manager was restarted before the process was stopped.
    ManagerRestarted,
    /// The processor is no longer part of the service.
    JobEnded,
    UnknownProcessor,
    /// The deployment has ended.
    StaleDeployment,
    /// An active and its standbys must not share a host.
    StandbyConstraint,
    /// The host is outside the `machines` of the service, and `force` was not set.
    NotAListedMachine,
    NotRunning,
    /// The processor has no running standby whose host it could take over.
    NoStandby,
    /// The processor is a worker of a worker pool, which only the owner of the pool may move.
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
