//! Retries killing with backoff, and reports processes that do not end. The container keeps its
//! space until these processes have ended (F31).

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::atomic_files;
use crate::process_identity;

/// File written when processes do not end after a kill.
pub const STUCK: &str = "stuck.json";

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Time after the first kill before processes count as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Message that a container does not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// Why the container does not end, for display.
    pub stuck: String,
}

/// Schedule of kill attempts.
pub struct KillRetry {
    started_at: Instant,
    next_at: Instant,
    pause: Duration,
    stuck_reported: bool,
}

impl KillRetry {
    /// Starts a schedule whose first attempt is due at once.
    pub fn new(now: Instant) -> Self {
        Self {
            started_at: now,
            next_at: now,
            pause: FIRST_PAUSE,
            stuck_reported: false,
        }
    }

    /// Returns whether an attempt is due, and schedules the next one.
    pub fn take_due(&mut self, now: Instant) -> bool {
        if now < self.next_at {
            return false;
        }
        self.next_at = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }

    pub fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Returns true once, when killing has taken too long.
    pub fn became_stuck(&mut self, now: Instant) -> bool {
        let is_newly_stuck = !self.stuck_reported && now >= self.started_at + STUCK_AFTER;
        self.stuck_reported |= is_newly_stuck;
        is_newly_stuck
    }
}

/// Describes the remaining children, and writes the description to [`STUCK`].
pub fn report_stuck(dir: &Path) -> Stuck {
    let names: Vec<String> = process_identity::children()
        .into_iter()
        .filter_map(process_identity::describe)
        .collect();
    let stuck = Stuck {
        stuck: stuck_reason(&names),
    };
    // The file is for an agent that adopts this supervisor.
    let _ = atomic_files::replace_json(&dir.join(STUCK), &stuck);
    stuck
}

pub fn stuck_reason(names: &[String]) -> String {
    const MAX_NAMED: usize = 3;
    let suffix = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        unlisted => format!(" and {unlisted} more"),
    };
    let listed = names[..names.len().min(MAX_NAMED)].join(", ");
    format!("it was killed but does not end: {listed}{suffix}; retrying")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_back_off_and_a_stuck_kill_is_reported_once() {
        let start = Instant::now();
        let mut retry = KillRetry::new(start);
        let mut attempts = Vec::new();
        for ms in (0..60_000).step_by(100) {
            if retry.take_due(start + Duration::from_millis(ms)) {
                attempts.push(ms);
            }
        }
        assert_eq!(attempts[..6], [0, 200, 600, 1400, 3000, 6200]);
        assert!(attempts.windows(2).all(|pair| pair[1] - pair[0] <= 10_000));
        assert!(!retry.became_stuck(start + Duration::from_secs(1)));
        assert!(retry.became_stuck(start + Duration::from_secs(3)));
        assert!(!retry.became_stuck(start + Duration::from_secs(4)));
    }

    #[test]
    fn the_reason_names_three_processes_at_most() {
        let names: Vec<String> = (1..=5).map(|number| format!("p{number}")).collect();
        let text = stuck_reason(&names);
        assert!(text.contains("p1, p2, p3 and 2 more"), "{text}");
    }
}
