//! Describes for users how a run of a task ended, and whether they have to act.

use hayward_job_converter_api::tasks::{Blame, EndCause, TaskEnd};

/// Stored facts about the end of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunFacts<'a> {
    /// Cause that the runner reported.
    pub cause: Option<&'a str>,
    pub message: Option<&'a str>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Why the program could not be started.
    pub error: Option<&'a str>,
}

/// Describes the end of a run.
pub fn describe_run_end(facts: &RunFacts<'_>) -> TaskEnd {
    let cause = end_cause(facts);
    TaskEnd {
        cause,
        blame: blame(cause, facts.exit_code),
        message: facts
            .message
            .map_or_else(|| default_message(cause, facts), str::to_owned),
    }
}

/// Returns the reported cause, else the one that follows from the exit status.
fn end_cause(facts: &RunFacts<'_>) -> EndCause {
    match facts.cause {
        Some(name) => EndCause::from_name(name),
        None if facts.error.is_some() => EndCause::CannotStart,
        None if facts.signal.is_some() => EndCause::Signalled,
        None => EndCause::Exited,
    }
}

fn blame(cause: EndCause, exit_code: Option<i32>) -> Blame {
    match cause {
        EndCause::Exited if exit_code == Some(0) => Blame::None,
        EndCause::Stopped | EndCause::Cancelled => Blame::None,
        EndCause::Exited
        | EndCause::Signalled
        | EndCause::OutOfMemory
        | EndCause::TimeLimit
        | EndCause::CannotStart
        // A task can kill its launcher, which has the same account.
        | EndCause::CrashedRunner => Blame::User,
        EndCause::Unknown => Blame::System,
    }
}

/// Returns the message of an end whose runner sent none.
fn default_message(cause: EndCause, facts: &RunFacts<'_>) -> String {
    match (cause, facts.exit_code, facts.signal) {
        (EndCause::Exited, Some(code), _) => format!("exited with status {code}"),
        (EndCause::Signalled, _, Some(signal)) => describe_signal(signal),
        (EndCause::Exited, None, _) => "ended without an exit status".to_owned(),
        (EndCause::Signalled, _, None) => "ended by a signal".to_owned(),
        (EndCause::OutOfMemory, _, _) => "reached its memory limit".to_owned(),
        (EndCause::TimeLimit, _, _) => "reached its time limit".to_owned(),
        (EndCause::CannotStart, _, _) => facts.error.unwrap_or("could not be started").to_owned(),
        (EndCause::Stopped, _, _) => "was stopped by Hayward".to_owned(),
        (EndCause::CrashedRunner, _, _) => "its launcher ended while it ran".to_owned(),
        (EndCause::Cancelled, _, _) => "was cancelled".to_owned(),
        (EndCause::Unknown, _, _) => "ended for an unknown reason".to_owned(),
    }
}

fn describe_signal(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("ended by signal {signal} ({name})"),
        None => format!("ended by signal {signal}"),
    }
}

/// Returns the name of a signal of Linux that ends a program.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        5 => "TRAP",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        10 => "USR1",
        11 => "SEGV",
        12 => "USR2",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        24 => "XCPU",
        25 => "XFSZ",
        31 => "SYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_FACTS: RunFacts<'static> = RunFacts {
        cause: None,
        message: None,
        exit_code: None,
        signal: None,
        error: None,
    };

    fn exited(code: i32) -> RunFacts<'static> {
        RunFacts {
            exit_code: Some(code),
            ..NO_FACTS
        }
    }

    fn signalled(signal: i32) -> RunFacts<'static> {
        RunFacts {
            signal: Some(signal),
            ..NO_FACTS
        }
    }

    fn reported(cause: &'static str) -> RunFacts<'static> {
        RunFacts {
            cause: Some(cause),
            ..signalled(9)
        }
    }

    #[test]
    fn the_cause_follows_from_the_exit_status_unless_one_is_reported() {
        let cannot_start = RunFacts {
            error: Some("no such file"),
            ..NO_FACTS
        };
        for (facts, cause) in [
            (exited(3), EndCause::Exited),
            (NO_FACTS, EndCause::Exited),
            (signalled(11), EndCause::Signalled),
            (cannot_start, EndCause::CannotStart),
            (reported("time_limit"), EndCause::TimeLimit),
            (reported("of_a_later_version"), EndCause::Unknown),
        ] {
            assert_eq!(describe_run_end(&facts).cause, cause, "{facts:?}");
        }
    }

    #[test]
    fn only_an_intended_end_blames_neither_user_nor_system() {
        for (facts, blame) in [
            (exited(0), Blame::None),
            (reported("stopped"), Blame::None),
            (reported("cancelled"), Blame::None),
            (exited(3), Blame::User),
            (signalled(11), Blame::User),
            (reported("time_limit"), Blame::User),
            (reported("out_of_memory"), Blame::User),
            (reported("cannot_start"), Blame::User),
            (reported("unknown"), Blame::System),
        ] {
            assert_eq!(describe_run_end(&facts).blame, blame, "{facts:?}");
        }
    }

    #[test]
    fn a_reported_message_comes_first_and_every_cause_has_another() {
        let with_error = RunFacts {
            error: Some("no such file"),
            ..NO_FACTS
        };
        let with_message = RunFacts {
            message: Some("ran for 7 s"),
            ..reported("time_limit")
        };
        for (facts, message) in [
            (exited(3), "exited with status 3"),
            (NO_FACTS, "ended without an exit status"),
            (signalled(11), "ended by signal 11 (SEGV)"),
            (signalled(40), "ended by signal 40"),
            (with_error, "no such file"),
            (with_message, "ran for 7 s"),
            (reported("time_limit"), "reached its time limit"),
            (reported("out_of_memory"), "reached its memory limit"),
            (reported("stopped"), "was stopped by Hayward"),
            (reported("cancelled"), "was cancelled"),
            (reported("unknown"), "ended for an unknown reason"),
        ] {
            assert_eq!(describe_run_end(&facts).message, message);
        }
    }
}
