//! Classes of ends (section 9). The reference tells them apart by exit codes (0, −100 aborted, −101
//! disk, −102 preempted, others); here the cause says it.

use hayward_vocabulary::{Exit, ExitCause};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Exit 0.
    Completed,
    /// Any other end of the program's own doing: the only one that is counted.
    Failure,
    /// It never ran. Spends no retry.
    LaunchFailed,
    /// The node's doing, or nobody knows: not a failure.
    Lost,
    /// It had been told to leave: never a failure, whatever its code.
    Intended,
    /// Ended by order without having been told to leave: a restart that someone asked for.
    Restarted,
}

/// `leaving`: it had been told to leave. That is asked first, so that a stop which was ordered
/// spends nothing (section 9, the second hole).
pub fn ending(exit: Option<&Exit>, leaving: bool) -> Ending {
    if leaving {
        return Ending::Intended;
    }
    let Some(exit) = exit else {
        return Ending::Lost;
    };
    match exit.cause {
        ExitCause::Success => Ending::Completed,
        // A class of the machine's faults (disk full, no device) clears the program.
        ExitCause::UserError | ExitCause::UserLimit if exit.cause_code.is_some() => Ending::Lost,
        ExitCause::UserError | ExitCause::UserLimit => Ending::Failure,
        ExitCause::LaunchFailed => Ending::LaunchFailed,
        ExitCause::Intended => Ending::Restarted,
        // A word of a later version is held against nobody.
        ExitCause::Node | ExitCause::LaunchUnknown | ExitCause::Unknown => Ending::Lost,
    }
}
