//! All timers of the protocol in one table: default duration, owner, start and effect.
//!
//! The timers of queues, reservations and preemption run in the planner. The table lists them too,
//! so that it has the defaults of all timers.

use std::collections::BTreeMap;

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timer {
    FrontTick,
    CoreLoop,
    Placeholder,
    GangAdmission,
    GangRepair,
    /// Used by release 1.0 only. This core changes from Accepted to Running.
    Starting,
    Completing,
    Terminated,
    QueueSweep,
    ReservationDelay,
    ReservationLifetime,
    PreemptionDelay,
    PreemptionRetry,
    UnschedulableBackOff,
    OrphanRetry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The frontend, [`crate::frontend`].
    Front,
    /// The core, [`crate::core`].
    Core,
    /// The planner, which owns the queues.
    Planner,
    /// No component: the state or object that the timer belonged to no longer exists.
    NoOwner,
}

#[derive(Debug, Clone, Copy)]
pub struct TimerRule {
    pub timer: Timer,
    /// Default in milliseconds. 0 disables the timer unless the application sets it.
    pub default_ms: u64,
    pub owner: Owner,
    /// Event that arms the timer, for readers.
    pub armed_by: &'static str,
    /// Effect when the timer is due, for readers.
    pub effect: &'static str,
}

const fn rule(
    timer: Timer,
    default_ms: u64,
    owner: Owner,
    armed_by: &'static str,
    effect: &'static str,
) -> TimerRule {
    TimerRule {
        timer,
        default_ms,
        owner,
        armed_by,
        effect,
    }
}

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

pub const RULES: [TimerRule; 15] = {
    use Owner::{Core, Front, NoOwner, Planner};
    [
        rule(
            Timer::FrontTick,
            1_000,
            Front,
            "always",
            "the frontend submits, reserves or runs",
        ),
        rule(
            Timer::CoreLoop,
            100,
            Planner,
            "always",
            "one scheduling pass",
        ),
        rule(
            Timer::Placeholder,
            15 * MINUTE,
            Core,
            "first placeholder allocation, while Accepted",
            "unused placeholders are released; by its style, the application continues or fails",
        ),
        rule(
            Timer::GangAdmission,
            0,
            Core,
            "acceptance",
            "an incomplete gang is released; by its style, the application continues or fails",
        ),
        rule(
            Timer::GangRepair,
            MINUTE,
            Core,
            "a gang falls below its minimum",
            "the gang is released as a whole",
        ),
        rule(
            Timer::Starting,
            5 * MINUTE,
            NoOwner,
            "entry of Starting",
            "Run",
        ),
        rule(
            Timer::Completing,
            30_000,
            Core,
            "entry of Completing",
            "unused placeholders are released, then Completed",
        ),
        rule(
            Timer::Terminated,
            3 * DAY,
            Core,
            "Completed, Failed or Rejected",
            "Expired",
        ),
        rule(
            Timer::QueueSweep,
            10_000,
            Planner,
            "always",
            "removable empty queues are removed",
        ),
        rule(
            Timer::ReservationDelay,
            2_000,
            Planner,
            "ask creation",
            "the ask may reserve a node",
        ),
        rule(
            Timer::ReservationLifetime,
            60 * MINUTE,
            Planner,
            "reservation",
            "the reservation is cancelled",
        ),
        rule(
            Timer::PreemptionDelay,
            30_000,
            Planner,
            "ask creation",
            "the ask may preempt",
        ),
        rule(
            Timer::PreemptionRetry,
            15_000,
            Planner,
            "last attempt",
            "the next attempt may start",
        ),
        rule(
            Timer::UnschedulableBackOff,
            30_000,
            Planner,
            "the threshold of failed attempts",
            "the application is considered again",
        ),
        // Placeholders are rows, so their deletion cannot fail.
        rule(
            Timer::OrphanRetry,
            5_000,
            NoOwner,
            "deletion failed",
            "the deletion is repeated",
        ),
    ]
};

impl Timer {
    pub fn rule(self) -> &'static TimerRule {
        let found = RULES.iter().find(|rule| rule.timer == self);
        found.expect("every timer has a rule")
    }

    pub fn default_ms(self) -> u64 {
        self.rule().default_ms
    }
}

/// Armed timers and the instants when they are due. A restart does not change instants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArmedTimers(BTreeMap<Timer, Timestamp>);

impl ArmedTimers {
    pub fn arm(&mut self, timer: Timer, due: Timestamp) {
        self.0.insert(timer, due);
    }

    pub fn clear(&mut self, timer: Timer) {
        self.0.remove(&timer);
    }

    pub fn due(&self, timer: Timer) -> Option<Timestamp> {
        self.0.get(&timer).copied()
    }

    /// Returns the due time of the next timer.
    pub fn next(&self) -> Option<Timestamp> {
        self.0.values().min().copied()
    }

    /// Takes a due timer, the earliest first.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        let due = self.0.iter().filter(|(_, at)| **at <= now);
        let timer = due
            .min_by_key(|(timer, at)| (**at, **timer))
            .map(|(it, _)| *it)?;
        self.0.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_timer_fires_first_and_once() {
        let time = Timestamp::from_unix_ms;
        let mut armed = ArmedTimers::default();
        armed.arm(Timer::Placeholder, time(20));
        armed.arm(Timer::Terminated, time(10));
        assert_eq!(armed.next(), Some(time(10)));
        assert_eq!(armed.pop_due(time(9)), None);
        assert_eq!(armed.pop_due(time(30)), Some(Timer::Terminated));
        assert_eq!(armed.pop_due(time(30)), Some(Timer::Placeholder));
        assert_eq!(armed.pop_due(time(30)), None);
    }

    #[test]
    fn timers_have_their_defaults() {
        for (timer, ms) in [
            (Timer::FrontTick, 1_000),
            (Timer::Placeholder, 900_000),
            (Timer::Completing, 30_000),
            (Timer::Terminated, 259_200_000),
            (Timer::QueueSweep, 10_000),
            (Timer::PreemptionRetry, 15_000),
        ] {
            assert_eq!(timer.default_ms(), ms, "{timer:?}");
        }
    }
}
