//! Policy parameters of a gang, and their text form.

use serde::{Deserialize, Serialize};

use crate::timers::Timer;

/// Longest timeout in seconds, one year. Much longer timeouts would exceed the range of
/// [`hayward_vocabulary::Timestamp`].
pub const MAX_SECONDS: u64 = 366 * 86_400;
const TIMEOUTS: [&str; 3] = [
    "placeholderTimeoutInSeconds",
    "gangAdmissionTimeoutInSeconds",
    "gangRepairInSeconds",
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Style {
    /// The application continues without the gang.
    #[default]
    Soft,
    /// The application fails.
    Hard,
}

/// Whether a gang is admitted as a whole, or placeholder by placeholder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    #[default]
    Atomic,
    Partial,
}

/// Reaction to a gang below its minimum (I13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenShort {
    /// The gang is repaired with priority for this long, then released as a whole.
    Repair {
        grace_ms: u64,
    },
    ReleaseWhole,
}

impl Default for WhenShort {
    fn default() -> Self {
        Self::Repair { grace_ms: 60_000 }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Milliseconds until unused placeholders are released. 0 selects the default of the core, 15
    /// minutes.
    pub placeholder_timeout_ms: u64,
    pub style: Style,
    pub admission: Admission,
    /// Milliseconds from acceptance to the admission of the gang. With 0 it waits without limit.
    pub gang_admission_timeout_ms: u64,
    pub when_short: WhenShort,
}

impl Policy {
    /// Returns how long placeholders hold unused allocations, in milliseconds.
    pub fn placeholders_wait_ms(&self) -> u64 {
        match self.placeholder_timeout_ms {
            0 => Timer::Placeholder.default_ms(),
            ms => ms,
        }
    }

    /// Parses `key=value` pairs separated by spaces. An element without exactly one `=` is skipped,
    /// an invalid timeout is 0, an unknown style is Soft, and unknown keys are ignored.
    pub fn parse(text: &str) -> Self {
        let mut policy = Self::default();
        for element in text.split_whitespace() {
            let Some((key, value)) = element.split_once('=') else {
                continue;
            };
            let seconds = || value.parse::<u64>().unwrap_or(0);
            let seconds_as_ms = || seconds().min(MAX_SECONDS) * 1_000;
            match key {
                _ if value.contains('=') => {}
                "placeholderTimeoutInSeconds" => policy.placeholder_timeout_ms = seconds_as_ms(),
                "gangAdmissionTimeoutInSeconds" => {
                    policy.gang_admission_timeout_ms = seconds_as_ms();
                }
                "gangSchedulingStyle" => {
                    policy.style = match value {
                        "Hard" => Style::Hard,
                        _ => Style::Soft,
                    };
                }
                "gangAdmission" => {
                    policy.admission = match value {
                        "Partial" => Admission::Partial,
                        _ => Admission::Atomic,
                    };
                }
                "gangRepairInSeconds" => {
                    policy.when_short = match seconds_as_ms() {
                        0 => WhenShort::ReleaseWhole,
                        grace_ms => WhenShort::Repair { grace_ms },
                    };
                }
                _ => {}
            }
        }
        policy
    }

    /// Returns the keys of timeouts above [`MAX_SECONDS`].
    pub fn find_too_long_timeouts(text: &str) -> Vec<&str> {
        let pairs = text.split_whitespace().filter_map(|it| it.split_once('='));
        let too_long = pairs.filter(|(key, value)| {
            TIMEOUTS.contains(key) && value.parse::<u64>().is_ok_and(|it| it > MAX_SECONDS)
        });
        too_long.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{self, Input};
    use crate::test_application::{group, size, submission, time};

    #[test]
    fn the_longest_timeouts_are_limited_and_can_be_stored() {
        let longest = u64::MAX.to_string();
        let text: Vec<String> = TIMEOUTS.map(|key| format!("{key}={longest}")).into();
        let text = text.join(" ");
        assert_eq!(Policy::find_too_long_timeouts(&text), TIMEOUTS);
        assert!(Policy::find_too_long_timeouts("gangRepairInSeconds=60").is_empty());
        let policy = Policy::parse(&text);
        assert_eq!(policy.placeholder_timeout_ms, MAX_SECONDS * 1_000);
        let groups = vec![group("g", 1, size(1, 0))];
        let mut core = core::Application::new(submission(groups, policy), time(0));
        core.step(Input::Admitted(Ok(())), time(10));
        assert!(core.head.timers.next().is_some());
        let text = serde_json::to_string(&core.head).unwrap();
        assert_eq!(
            serde_json::from_str::<core::Head>(&text).unwrap(),
            core.head
        );
    }
}
