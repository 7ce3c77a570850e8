//! Signals that users choose for their tasks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A signal that announces the end of a task (TC-105).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TaskSignal {
    Term,
    Int,
    Hup,
    Quit,
    Usr1,
    Usr2,
    Alrm,
    Cont,
}

impl TaskSignal {
    const ALL: [Self; 8] = [
        Self::Term,
        Self::Int,
        Self::Hup,
        Self::Quit,
        Self::Usr1,
        Self::Usr2,
        Self::Alrm,
        Self::Cont,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Hup => "HUP",
            Self::Quit => "QUIT",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Alrm => "ALRM",
            Self::Cont => "CONT",
        }
    }
}

impl fmt::Display for TaskSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A signal that a user sends to running tasks (TC-108).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum SentSignal {
    Term,
    Int,
    Hup,
    Quit,
    Usr1,
    Usr2,
    Alrm,
    Cont,
    Stop,
    Kill,
}

impl SentSignal {
    const ALL: [Self; 10] = [
        Self::Term,
        Self::Int,
        Self::Hup,
        Self::Quit,
        Self::Usr1,
        Self::Usr2,
        Self::Alrm,
        Self::Cont,
        Self::Stop,
        Self::Kill,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Hup => "HUP",
            Self::Quit => "QUIT",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Alrm => "ALRM",
            Self::Cont => "CONT",
            Self::Stop => "STOP",
            Self::Kill => "KILL",
        }
    }
}

impl fmt::Display for SentSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses a name with or without `SIG`.
impl FromStr for SentSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let found = Self::ALL.into_iter().find(|signal| signal.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is not a signal that can be sent: choose one of {names}")
        })
    }
}

/// Parses a name with or without `SIG`. KILL and STOP are refused, because a program cannot handle
/// them, so neither can announce an end.
impl FromStr for TaskSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let found = Self::ALL.into_iter().find(|signal| signal.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            if matches!(name, "KILL" | "STOP") {
                format!("a program cannot handle {name}: choose one of {names}")
            } else {
                format!("{text:?} is not a signal that announces an end: choose one of {names}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_one_name_on_the_wire_and_on_the_command_line() {
        for signal in TaskSignal::ALL {
            assert_eq!(signal.name().parse(), Ok(signal));
            let json = format!("\"{signal}\"");
            assert_eq!(serde_json::to_string(&signal).unwrap(), json);
        }
        assert_eq!("SIGUSR1".parse(), Ok(TaskSignal::Usr1));
    }

    #[test]
    fn a_sent_signal_has_one_name_on_the_wire_and_on_the_command_line() {
        for signal in SentSignal::ALL {
            assert_eq!(signal.name().parse(), Ok(signal));
            let json = format!("\"{signal}\"");
            assert_eq!(serde_json::to_string(&signal).unwrap(), json);
        }
        assert_eq!("SIGKILL".parse(), Ok(SentSignal::Kill));
        assert!("usr1".parse::<SentSignal>().is_err());
    }

    #[test]
    fn a_signal_that_no_program_can_handle_is_refused() {
        for name in ["KILL", "STOP", "term", "9", ""] {
            assert!(name.parse::<TaskSignal>().is_err(), "{name}");
        }
    }
}
