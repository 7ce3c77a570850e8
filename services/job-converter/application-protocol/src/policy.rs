//! Policy parameters of a gang, and the text form they come in (5.1, AP-6).

use serde::{Deserialize, Serialize};

use crate::timers::Timer;

/// A timer of more than a year is none, and one of a million is no instant that can be written.
pub const LONGEST_S: u64 = 366 * 86_400;
const TIMEOUTS: [&str; 3] = [
    "placeholderTimeoutInSeconds",
    "gangAdmissionTimeoutInSeconds",
    "gangRepairInSeconds",
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Style {
    /// Goes on without the gang.
    #[default]
    Soft,
    /// Fails.
    Hard,
}

/// Whether a gang is admitted whole (17.1), or one placeholder after the other as of old.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    #[default]
    Atomic,
    Partial,
}

/// What becomes of a gang that fell below its minimum (I13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenShort {
    /// First in line, for this long; released whole after it.
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
    /// 0: the default of the core, 15 minutes.
    pub placeholder_timeout_ms: u64,
    pub style: Style,
    pub admission: Admission,
    /// From acceptance (17.2); 0: it waits for ever.
    pub gang_admission_timeout_ms: u64,
    pub when_short: WhenShort,
}

impl Policy {
    /// How long placeholders hold a place that no task comes for.
    pub fn placeholders_wait_ms(&self) -> u64 {
        match self.placeholder_timeout_ms {
            0 => Timer::Placeholder.default_ms(),
            given => given,
        }
    }

    /// Blanks between `key=value`; an element without exactly one `=` is skipped, a timeout that
    /// does not parse is 0, an unknown style is Soft. Keys of others are theirs.
    pub fn parse(text: &str) -> Self {
        let mut policy = Self::default();
        for element in text.split_whitespace() {
            let Some((key, value)) = element.split_once('=') else {
                continue;
            };
            let seconds = || value.parse::<u64>().unwrap_or(0);
            let seconds_as_ms = || seconds().min(LONGEST_S) * 1_000;
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

    /// The keys of timeouts above [`LONGEST_S`].
    pub fn too_long(text: &str) -> Vec<&str> {
        let pairs = text.split_whitespace().filter_map(|it| it.split_once('='));
        let long = pairs.filter(|(key, value)| {
            TIMEOUTS.contains(key) && value.parse::<u64>().is_ok_and(|it| it > LONGEST_S)
        });
        long.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{self, Input};
    use crate::test_fleet::{at, group, size, submission};

    #[test]
    fn no_timer_is_beyond_what_can_be_read_back() {
        let longest = u64::MAX.to_string();
        let text: Vec<String> = TIMEOUTS.map(|key| format!("{key}={longest}")).into();
        let text = text.join(" ");
        assert_eq!(Policy::too_long(&text), TIMEOUTS);
        assert!(Policy::too_long("gangRepairInSeconds=60").is_empty());
        let policy = Policy::parse(&text);
        assert_eq!(policy.placeholder_timeout_ms, LONGEST_S * 1_000);
        let groups = vec![group("g", 1, size(1, 0))];
        let mut core = core::Application::new(submission(groups, policy), at(0));
        core.step(Input::Admitted(Ok(())), at(10));
        assert!(core.head.timers.next().is_some());
        let text = serde_json::to_string(&core.head).unwrap();
        assert_eq!(
            serde_json::from_str::<core::Head>(&text).unwrap(),
            core.head
        );
    }
}
