//! All timers of the protocol as data: duration, start and effect.
//!
//! Timers of queues, reservations and preemption belong to the planner. They are listed so that one
//! table has all defaults.

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
pub struct Rule {
    pub timer: Timer,
    /// Default in milliseconds. 0 disables the timer unless the application sets it.
    pub default_ms: u64,
    pub owner: Owner,
    /// Event that arms the timer.
    pub starts: &'static str,
    /// Effect when the timer is due.
    pub expires: &'static str,
}

const fn rule(
    timer: Timer,
    default_ms: u64,
    owner: Owner,
    starts: &'static str,
    expires: &'static str,
) -> Rule {
    Rule {
        timer,
        default_ms,
        owner,
        starts,
        expires,
    }
}

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

pub const RULES: [Rule; 15] = {
    use Owner::{Core, Front, NoOwner, Planner};
    [
        rule(
            Timer::FrontTick,
            1_000,
            Front,
            "always",
            "submits, reserves or runs",
        ),
        rule(Timer::CoreLoop, 100, Planner, "always", "one pass"),
        rule(
            Timer::Placeholder,
            15 * MINUTE,
            Core,
            "first placeholder allocation, while Accepted",
            "what is left of the gang is given up, as its style says",
        ),
        rule(
            Timer::GangAdmission,
            0,
            Core,
            "acceptance",
            "a gang that is not whole is given up, as its style says",
        ),
        rule(
            Timer::GangRepair,
            MINUTE,
            Core,
            "a gang falls below its minimum",
            "it is released whole",
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
            "left-over placeholders are released, then Completed",
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
            "empty queues that may go are removed",
        ),
        rule(
            Timer::ReservationDelay,
            2_000,
            Planner,
            "ask creation",
            "it may reserve a node",
        ),
        rule(
            Timer::ReservationLifetime,
            60 * MINUTE,
            Planner,
            "reservation",
            "cancelled",
        ),
        rule(
            Timer::PreemptionDelay,
            30_000,
            Planner,
            "ask creation",
            "it may preempt",
        ),
        rule(
            Timer::PreemptionRetry,
            15_000,
            Planner,
            "last attempt",
            "the next may be made",
        ),
        rule(
            Timer::UnschedulableBackOff,
            30_000,
            Planner,
            "threshold hit",
            "the application is looked at again",
        ),
        // Placeholders are rows, so their deletion cannot fail.
        rule(
            Timer::OrphanRetry,
            5_000,
            NoOwner,
            "deletion failed",
            "delete again",
        ),
    ]
};

impl Timer {
    pub fn rule(self) -> &'static Rule {
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
