//! Describes process exits for users, and decides whether the program caused an exit.

use hayward_vocabulary::launch::NOT_OFFERED;
use hayward_vocabulary::{Exit, ExitCause};

/// Returns true if the program itself caused the end. A refusal by the node counts too, because the
/// node refuses the same program again and is not blocked for that.
pub fn is_caused_by_program(vacated: bool, exit: Option<&Exit>) -> bool {
    !vacated
        && exit.is_none_or(|exit| match exit.cause {
            ExitCause::Node => exit.cause_code.as_deref() == Some(NOT_OFFERED),
            cause => cause != ExitCause::Intended,
        })
}

/// Describes an exit in words, for timelines and reasons.
pub fn describe_exit(exit: &Exit) -> String {
    let cause = match exit.cause {
        ExitCause::Success => "ended well",
        ExitCause::UserError => "ended with an error",
        ExitCause::UserLimit => "went over a limit",
        ExitCause::LaunchFailed => "could not be started",
        ExitCause::Node if exit.cause_code.as_deref() == Some(NOT_OFFERED) => {
            "was refused by its node"
        }
        ExitCause::Node if exit.cause_code.is_some() => "could not be run by its node",
        ExitCause::Node => "lost with its node",
        ExitCause::Intended => "was stopped",
        ExitCause::LaunchUnknown => "was possibly never started",
        ExitCause::Unknown => "ended",
    };
    let code = exit
        .code
        .map(|code| format!(", status {code}"))
        .unwrap_or_default();
    let signal = exit
        .signal
        .map(|signal| format!(", signal {signal}"))
        .unwrap_or_default();
    let text = exit
        .message
        .as_deref()
        .map(|text| format!(" ({text})"))
        .unwrap_or_default();
    format!("{cause}{code}{signal}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only ends that the program caused hold work back (W15).
    #[test]
    fn an_intended_end_or_a_node_fault_is_not_caused_by_the_program() {
        use ExitCause::{
            Intended, LaunchFailed, LaunchUnknown, Node, Success, Unknown, UserError, UserLimit,
        };
        let causes = [
            (Success, true),
            (UserError, true),
            (UserLimit, true),
            (LaunchFailed, true),
            (Node, false),
            (Intended, false),
            (LaunchUnknown, true),
            (Unknown, true),
        ];
        for (cause, by_program) in causes {
            let exit = exit(cause, None);
            assert_eq!(
                is_caused_by_program(false, Some(&exit)),
                by_program,
                "{cause:?}"
            );
            assert!(
                !is_caused_by_program(true, Some(&exit)),
                "a vacated process: {cause:?}"
            );
        }
        assert!(!is_caused_by_program(true, None));
    }

    #[test]
    fn a_launch_refused_by_its_node_is_caused_by_the_program() {
        assert!(is_caused_by_program(
            false,
            Some(&exit(ExitCause::Node, Some(NOT_OFFERED)))
        ));
        assert!(!is_caused_by_program(
            false,
            Some(&exit(ExitCause::Node, Some("lost")))
        ));
    }

    #[test]
    fn the_description_of_an_end_states_what_the_node_did() {
        let description = |code| {
            describe_exit(&Exit {
                message: None,
                ..exit(ExitCause::Node, code)
            })
        };
        assert_eq!(description(None), "lost with its node");
        assert_eq!(description(Some(NOT_OFFERED)), "was refused by its node");
        assert_eq!(
            description(Some("engine_down")),
            "could not be run by its node"
        );
    }

    fn exit(cause: ExitCause, code: Option<&str>) -> Exit {
        Exit {
            cause_code: code.map(ToOwned::to_owned),
            ..Exit::of(cause, "")
        }
    }
}
