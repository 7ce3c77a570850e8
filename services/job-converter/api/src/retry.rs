//! Which failures of a task are tried again.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Attempts of a task after failures (TC-126).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySubmission {
    /// Attempts of a task before it has failed. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub max_attempts: Option<u32>,
    /// Milliseconds before the second attempt, doubled before each further one. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86_400_000)]
    pub delay_ms: Option<u64>,
    /// Longest delay in milliseconds. Default 60,000, or `delay_ms` if that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86_400_000)]
    pub max_delay_ms: Option<u64>,
    /// Causes of ends that are tried again. Default: `exited`, `signalled` and `cannot_start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<RetryCause>>,
    /// Exit codes that are tried again, 1 to 255. Default: all but 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<u32>,
    /// Exit codes that are never tried again. They win over `exit_codes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never_exit_codes: Vec<u32>,
}

/// Cause of a failure that may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryCause {
    Exited,
    Signalled,
    CannotStart,
    OutOfMemory,
    TimeLimit,
}

impl RetryCause {
    const ALL: [Self; 5] = [
        Self::Exited,
        Self::Signalled,
        Self::CannotStart,
        Self::OutOfMemory,
        Self::TimeLimit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signalled => "signalled",
            Self::CannotStart => "cannot_start",
            Self::OutOfMemory => "out_of_memory",
            Self::TimeLimit => "time_limit",
        }
    }
}

impl FromStr for RetryCause {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|cause| cause.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is no cause of a failure: choose from {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_name_on_the_wire_and_on_the_command_line() {
        for cause in RetryCause::ALL {
            assert_eq!(cause.name().parse(), Ok(cause));
            let json = format!("\"{}\"", cause.name());
            assert_eq!(serde_json::to_string(&cause).unwrap(), json);
        }
        assert!("stopped".parse::<RetryCause>().is_err());
    }
}
