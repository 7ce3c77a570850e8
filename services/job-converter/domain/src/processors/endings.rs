//! Classes of process ends, by the cause of the exit.

use hayward_vocabulary::{Exit, ExitCause};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Exit status 0.
    Completed,
    /// Any other end caused by the program; the only counted class.
    Failure,
    /// It never ran; uses no retry.
    LaunchFailed,
    /// Caused by the node, or unknown: not a failure.
    Lost,
    /// It was vacating: never a failure, whatever its status.
    Intended,
    /// It ended on request without vacating: a restart.
    Restarted,
}

/// `leaving`: the process was vacating. This comes first, so that an ordered stop uses no retry.
pub fn ending(exit: Option<&Exit>, leaving: bool) -> Ending {
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
        // Unknown causes of a later version count as no failure.
        ExitCause::Node | ExitCause::LaunchUnknown | ExitCause::Unknown => Ending::Lost,
    }
}
