//! Derives how a task ended from how its process ended. Only a process that ended by itself with
//! status 0 completes the task (decision 0036).

use hayward_job_converter_application_protocol::frontend::{Failure, FailureCode};
use hayward_job_converter_application_protocol::messages::Termination;
use hayward_job_converter_domain::service_processors::{ProcessOutcome, classify_exit};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_vocabulary::Exit;

use crate::work::exit_description::describe_exit;

/// How the process of a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    Succeeded,
    /// The program failed or could not be started.
    Failed(Failure),
    /// The allocation was vacated, or the exit is unknown. The task counts as killed.
    Killed {
        termination: Termination,
        /// Cause in words, for a warning.
        cause: String,
    },
}

impl TaskEnd {
    pub fn from_allocation(entry: &AllocationEntry) -> Self {
        let exit = entry.exit.as_ref();
        let vacate = entry.vacate.as_ref();
        let exit_text = || exit.map_or_else(|| "the exit is unknown".to_owned(), describe_exit);
        let cause = vacate.map_or_else(exit_text, |vacate| vacate.detail.clone());
        match (classify_exit(exit, false), vacate.map(|it| it.reason)) {
            (ProcessOutcome::Completed, None) => Self::Succeeded,
            (ProcessOutcome::Failed, None) => Self::from_failure(FailureCode::Exited, exit),
            (ProcessOutcome::LaunchFailed, None) => {
                Self::from_failure(FailureCode::CannotStart, exit)
            }
            (ProcessOutcome::Lost | ProcessOutcome::Restarted | ProcessOutcome::Intended, None)
            | (ProcessOutcome::Lost, _) => Self::Killed {
                termination: Termination::Unknown,
                cause,
            },
            (_, Some(reason)) => Self::Killed {
                termination: termination_for(reason),
                cause,
            },
        }
    }

    /// Creates the end of an allocation that was removed before its end was observed.
    pub fn with_unknown_exit() -> Self {
        Self::Killed {
            termination: Termination::Unknown,
            cause: "the exit is unknown".to_owned(),
        }
    }

    fn from_failure(code: FailureCode, exit: Option<&Exit>) -> Self {
        let message = exit.map(describe_exit).unwrap_or_default();
        Self::Failed(Failure { code, message })
    }

    /// Returns why the allocation ended, in the terms of the protocol. Only a vacate has a known
    /// reason.
    pub fn termination(&self) -> Termination {
        match self {
            Self::Killed { termination, .. } => *termination,
            Self::Succeeded | Self::Failed(_) => Termination::Unknown,
        }
    }
}

/// Converts the reason of a vacate to the terms of the protocol, which knows only preemption and
/// replacement. A drain, a block or a lost node has the termination Unknown.
pub fn termination_for(reason: VacateReason) -> Termination {
    match reason {
        VacateReason::Preempted => Termination::PreemptedByScheduler,
        VacateReason::Replaced => Termination::PlaceholderReplaced,
        _ => Termination::Unknown,
    }
}
