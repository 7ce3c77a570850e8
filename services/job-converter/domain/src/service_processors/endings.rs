//! How processes, processors and services end. The end of a process is classified by the cause of
//! its exit: success, failure, or no fault of the program.

use hayward_vocabulary::{Exit, ExitCause};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process ended with status 0.
    Completed,
    /// The program caused another end. Only this class counts as a failure.
    Failure,
    /// The process never ran. No retry is used.
    LaunchFailed,
    /// The node caused the end, or the cause is unknown. The end is not a failure.
    Lost,
    /// The process was vacating. The end is never a failure, whatever its status.
    Intended,
    /// The process ended on request without vacating, as for a restart.
    Restarted,
}

/// Final state of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessorEnd {
    Failed,
    Completed,
}

/// How the service ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Completed,
    Failed(String),
}

/// Classifies an end. `leaving` means that the process was vacating. The end of a vacating process
/// is intended, whatever its exit says.
pub fn classify_exit(exit: Option<&Exit>, leaving: bool) -> Ending {
    if leaving {
        return Ending::Intended;
    }
    let Some(exit) = exit else {
        return Ending::Lost;
    };
    match exit.cause {
        ExitCause::Success => Ending::Completed,
        // A node fault, such as a full disk, is not the program's failure.
        ExitCause::UserError | ExitCause::UserLimit if exit.cause_code.is_some() => Ending::Lost,
        ExitCause::UserError | ExitCause::UserLimit => Ending::Failure,
        ExitCause::LaunchFailed => Ending::LaunchFailed,
        ExitCause::Intended => Ending::Restarted,
        // Unknown causes of a later version do not count as failures.
        ExitCause::Node | ExitCause::LaunchUnknown | ExitCause::Unknown => Ending::Lost,
    }
}
