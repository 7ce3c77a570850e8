//! Outcomes of processes, processors and services. The outcome of a process follows from the cause
//! of its exit. Only a fault of the program is a failure.

use hayward_vocabulary::{Exit, ExitCause};

/// How one process of a processor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessOutcome {
    /// The process ended with status 0.
    Completed,
    /// The program caused the end with another status. Only this outcome counts as a failure.
    Failed,
    /// The process never ran. No retry is used.
    LaunchFailed,
    /// The node caused the end, or the cause is unknown. The end is not a failure.
    Lost,
    /// The process was vacating. This is never a failure, whatever the exit status.
    Intended,
    /// The process was stopped without being vacated, for example to restart it.
    Restarted,
}

/// Final state of a processor, which starts no more processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessorOutcome {
    Failed,
    Completed,
}

/// How the service ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceOutcome {
    Completed,
    Failed(String),
}

/// Returns the outcome of a process. Without an exit, the process is lost.
pub fn classify_exit(exit: Option<&Exit>, was_vacating: bool) -> ProcessOutcome {
    if was_vacating {
        return ProcessOutcome::Intended;
    }
    let Some(exit) = exit else {
        return ProcessOutcome::Lost;
    };
    match exit.cause {
        ExitCause::Success => ProcessOutcome::Completed,
        // A node fault, such as a full disk, is not the program's failure.
        ExitCause::UserError | ExitCause::UserLimit if exit.cause_code.is_some() => {
            ProcessOutcome::Lost
        }
        ExitCause::UserError | ExitCause::UserLimit => ProcessOutcome::Failed,
        ExitCause::LaunchFailed => ProcessOutcome::LaunchFailed,
        ExitCause::Intended => ProcessOutcome::Restarted,
        // Unknown causes of a later version do not count as failures.
        ExitCause::Node | ExitCause::LaunchUnknown | ExitCause::Unknown => ProcessOutcome::Lost,
    }
}
