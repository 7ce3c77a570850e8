//! Derives how a task ended from how its process ended. Only a process that ended by itself with
//! status 0 completes the task (decision 0036).

use hayward_job_converter_application_protocol::frontend::{Failure, FailureCode};
use hayward_job_converter_application_protocol::messages::Termination;
use hayward_job_converter_domain::service_processors::{Ending, classify_exit};
use hayward_rm_scheduler_api::{AllocationEntry, VacateReason};
use hayward_vocabulary::Exit;

use crate::work::exits::describe_exit;

/// How the process of a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    Succeeded,
    /// The program failed or could not be started.
    Failed(Failure),
    /// The allocation was vacated, or the exit is unknown. The task counts as killed. The text is
    /// the cause.
    Killed(Termination, String),
}

impl TaskEnd {
    pub fn from_allocation(entry: &AllocationEntry) -> Self {
        let exit = entry.exit.as_ref();
        let vacate = entry.vacate.as_ref();
        let exit_text = || exit.map_or_else(|| "the exit is unknown".to_owned(), describe_exit);
        let cause = vacate.map_or_else(exit_text, |vacate| vacate.detail.clone());
        match (classify_exit(exit, false), vacate.map(|it| it.reason)) {
            (Ending::Completed, None) => Self::Succeeded,
            (Ending::Failure, None) => Self::from_failure(FailureCode::Exited, exit),
            (Ending::LaunchFailed, None) => Self::from_failure(FailureCode::CannotStart, exit),
            (Ending::Lost | Ending::Restarted | Ending::Intended, None) | (Ending::Lost, _) => {
                Self::Killed(Termination::Unknown, cause)
            }
            (_, Some(reason)) => Self::Killed(termination_for(reason), cause),
        }
    }

    /// Creates the end of an allocation that was removed before its end was observed.
    pub fn with_unknown_exit() -> Self {
        Self::Killed(Termination::Unknown, "the exit is unknown".to_owned())
    }

    fn from_failure(code: FailureCode, exit: Option<&Exit>) -> Self {
        let message = exit.map(describe_exit).unwrap_or_default();
        Self::Failed(Failure { code, message })
    }

    /// Returns the termination of a placeholder, which never ends by itself.
    pub fn termination(&self) -> Termination {
        match self {
            Self::Killed(termination, _) => *termination,
            Self::Succeeded | Self::Failed(_) => Termination::Unknown,
        }
    }
}

/// Converts the reason of a vacate. Only preemption and replacement free quanta for other work. A
/// drain, a block or a lost node does not.
pub fn termination_for(reason: VacateReason) -> Termination {
    match reason {
        VacateReason::Preempted => Termination::PreemptedByScheduler,
        VacateReason::Replaced => Termination::PlaceholderReplaced,
        _ => Termination::Unknown,
    }
}
