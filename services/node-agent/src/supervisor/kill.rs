//! Killing what does not end, again and again, ever slower, and saying so (F31): the machine may be
//! unable to end it. Until it is gone it keeps the container, and so its room (W16).

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::machine;

/// Written when killing did not help.
pub const STUCK: &str = "stuck.json";

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);
/// What is killed has this long to be gone before anybody is told.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a container does not end, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    pub stuck: String,
}

/// Attempts to kill.
pub struct Force {
    since: Instant,
    next: Instant,
    pause: Duration,
    told: bool,
}

impl Force {
    /// The first attempt is due at once.
    pub fn begin(now: Instant) -> Self {
        Self {
            since: now,
            next: now,
            pause: FIRST,
            told: false,
        }
    }

    pub fn due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST);
        true
    }

    pub fn next(&self) -> Instant {
        self.next
    }

    /// True once, when it has taken too long.
    pub fn is_news(&mut self, now: Instant) -> bool {
        let news = !self.told && now >= self.since + PATIENCE;
        self.told |= news;
        news
    }
}

/// What of our own children is still there.
pub fn stuck(dir: &Path) -> Stuck {
    let names: Vec<String> = machine::children()
        .into_iter()
        .filter_map(machine::described)
        .collect();
    let stuck = Stuck {
        stuck: reason(&names),
    };
    // Whoever adopts this supervisor reads it there.
    let _ = files::replace_json(&dir.join(STUCK), &stuck);
    stuck
}

pub fn reason(names: &[String]) -> String {
    const NAMED: usize = 3;
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = names[..names.len().min(NAMED)].join(", ");
    format!("it was killed and does not end: {named}{more}; it is tried again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f31_attempts_come_ever_slower_and_are_told_of_once() {
        let begin = Instant::now();
        let mut force = Force::begin(begin);
        let mut at = Vec::new();
        for ms in (0..60_000).step_by(100) {
            if force.due(begin + Duration::from_millis(ms)) {
                at.push(ms);
            }
        }
        assert_eq!(at[..6], [0, 200, 600, 1400, 3000, 6200]);
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] <= 10_000));
        assert!(!force.is_news(begin + Duration::from_secs(1)));
        assert!(force.is_news(begin + Duration::from_secs(3)));
        assert!(!force.is_news(begin + Duration::from_secs(4)));
    }

    #[test]
    fn f31_the_reason_stays_short() {
        let names: Vec<String> = (1..=5).map(|number| format!("p{number}")).collect();
        let told = reason(&names);
        assert!(told.contains("p1, p2, p3 and 2 more"), "{told}");
    }
}
