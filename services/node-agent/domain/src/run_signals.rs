//! When one run of a task is warned, asked to end and killed (TC-104).
//!
//! A run is asked to end once, by its time limit or by a request. It is killed when its grace is
//! over.

use serde::{Deserialize, Serialize};

/// Times of a run, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// From the start to the stop signal. `None` means no limit.
    pub time_limit_ms: Option<u64>,
    /// From the warning to the time limit.
    pub warn_before_ms: Option<u64>,
    /// From the stop signal to the kill.
    pub stop_grace_ms: u64,
}

/// Why a run is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    TimeLimit,
    /// The process of the task ends.
    Requested,
    /// The lease of the task has expired.
    LeaseExpired,
}

/// A request to stop all runs of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    pub reason: StopReason,
    /// Latest time of the kill.
    pub latest_kill_at_ms: u64,
}

/// A signal that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalStep {
    Warn,
    Stop,
    Kill,
}

/// State of the signals of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSignals {
    times: RunTimes,
    started_at_ms: u64,
    is_warned: bool,
    stop: Option<Stop>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    reason: StopReason,
    kill_at_ms: u64,
    is_sent: bool,
    is_killed: bool,
}

impl RunSignals {
    pub fn new(times: RunTimes, started_at_ms: u64) -> Self {
        Self {
            times,
            started_at_ms,
            is_warned: false,
            stop: None,
        }
    }

    /// Records a request. The first reason of a stop stays, and the earliest kill counts.
    pub fn request_stop(&mut self, request: StopRequest, now_ms: u64) {
        let grace_end = now_ms.saturating_add(self.times.stop_grace_ms);
        let stop = self.stop.get_or_insert(Stop {
            reason: request.reason,
            kill_at_ms: grace_end,
            is_sent: false,
            is_killed: false,
        });
        stop.kill_at_ms = stop.kill_at_ms.min(request.latest_kill_at_ms);
    }

    /// Returns the signal that is due, and counts it as sent.
    pub fn take_due(&mut self, now_ms: u64) -> Option<SignalStep> {
        if self.stop.is_none() && self.limit_at_ms().is_some_and(|at| at <= now_ms) {
            let request = StopRequest {
                reason: StopReason::TimeLimit,
                latest_kill_at_ms: u64::MAX,
            };
            self.request_stop(request, now_ms);
        }
        let Some(stop) = &mut self.stop else {
            let is_due = !self.is_warned && self.warn_at_ms().is_some_and(|at| at <= now_ms);
            self.is_warned |= is_due;
            return is_due.then_some(SignalStep::Warn);
        };
        if !stop.is_killed && stop.kill_at_ms <= now_ms {
            (stop.is_sent, stop.is_killed) = (true, true);
            return Some(SignalStep::Kill);
        }
        if stop.is_sent {
            return None;
        }
        stop.is_sent = true;
        Some(SignalStep::Stop)
    }

    /// Returns when the next signal is due. Returns `None` if none follows.
    pub fn next_at_ms(&self) -> Option<u64> {
        match self.stop {
            Some(stop) if stop.is_killed => None,
            Some(stop) if stop.is_sent => Some(stop.kill_at_ms),
            Some(_) => Some(0),
            None => {
                let warn_at = self.warn_at_ms().filter(|_| !self.is_warned);
                [warn_at, self.limit_at_ms()].into_iter().flatten().min()
            }
        }
    }

    /// Returns why the run was stopped. Returns `None` if no stop signal was sent.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.stop
            .filter(|stop| stop.is_sent)
            .map(|stop| stop.reason)
    }

    pub fn is_killed(&self) -> bool {
        self.stop.is_some_and(|stop| stop.is_killed)
    }

    fn limit_at_ms(&self) -> Option<u64> {
        Some(self.started_at_ms.saturating_add(self.times.time_limit_ms?))
    }

    fn warn_at_ms(&self) -> Option<u64> {
        Some(
            self.limit_at_ms()?
                .saturating_sub(self.times.warn_before_ms?),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: RunTimes = RunTimes {
        time_limit_ms: Some(1_000),
        warn_before_ms: Some(300),
        stop_grace_ms: 200,
    };

    fn request(reason: StopReason, latest_kill_at_ms: u64) -> StopRequest {
        StopRequest {
            reason,
            latest_kill_at_ms,
        }
    }

    #[test]
    fn a_run_is_warned_stopped_and_killed_in_turn() {
        let mut signals = RunSignals::new(TIMES, 5_000);
        assert_eq!(
            (signals.take_due(5_699), signals.next_at_ms()),
            (None, Some(5_700))
        );
        assert_eq!(signals.take_due(5_700), Some(SignalStep::Warn));
        assert_eq!(
            (signals.take_due(5_999), signals.next_at_ms()),
            (None, Some(6_000))
        );
        assert_eq!(signals.take_due(6_010), Some(SignalStep::Stop));
        assert_eq!(signals.stop_reason(), Some(StopReason::TimeLimit));
        assert_eq!(
            (signals.take_due(6_209), signals.next_at_ms()),
            (None, Some(6_210))
        );
        assert_eq!(signals.take_due(6_210), Some(SignalStep::Kill));
        assert_eq!(
            (signals.take_due(9_000), signals.next_at_ms()),
            (None, None)
        );
    }

    #[test]
    fn a_request_stops_at_once_and_its_reason_stays() {
        let mut signals = RunSignals::new(TIMES, 0);
        signals.request_stop(request(StopReason::Requested, u64::MAX), 100);
        assert_eq!(
            (signals.stop_reason(), signals.next_at_ms()),
            (None, Some(0))
        );
        assert_eq!(signals.take_due(100), Some(SignalStep::Stop));
        signals.request_stop(request(StopReason::LeaseExpired, 150), 120);
        assert_eq!(signals.next_at_ms(), Some(150));
        assert_eq!(signals.take_due(150), Some(SignalStep::Kill));
        assert_eq!(signals.stop_reason(), Some(StopReason::Requested));
    }

    #[test]
    fn a_run_without_grace_is_killed_without_a_stop_signal() {
        let times = RunTimes {
            stop_grace_ms: 0,
            ..RunTimes::default()
        };
        let mut signals = RunSignals::new(times, 0);
        assert_eq!(
            (signals.take_due(u64::MAX), signals.next_at_ms()),
            (None, None)
        );
        signals.request_stop(request(StopReason::LeaseExpired, 7), 7);
        assert_eq!(signals.take_due(7), Some(SignalStep::Kill));
        assert_eq!(signals.stop_reason(), Some(StopReason::LeaseExpired));
        assert!(signals.is_killed());
    }
}
