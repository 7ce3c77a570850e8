//! Rate limit for repeated log lines: a few lines of one kind in each window of time. Warnings and
//! errors from one place in the code are one kind. Other lines from one place are one kind if their
//! content is the same too. The next line has the number of withheld ones (T4).

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, callsite::Identifier};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::metrics::catalogue::LOG_LINES_WITHHELD;

/// Maximum number of lines of one kind per window.
const MAX_PER_WINDOW: u64 = 20;
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of kinds in memory.
const MAX_KINDS: usize = 4_096;

thread_local! {
    /// Number of withheld lines before the line that is being written.
    static WITHHELD: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of withheld lines of this kind before the line that is being written.
pub(super) fn withheld_count() -> u64 {
    WITHHELD.get()
}

/// Lines of one kind since the start of a window.
#[derive(Debug, Clone, Copy)]
struct Window {
    started: Instant,
    passed: u64,
    withheld: u64,
}

/// Windows by kind. A kind is a place in the code and a hash of the content. The hash is 0 for
/// warnings and errors.
#[derive(Default)]
pub(super) struct LogThrottle(Mutex<HashMap<(Identifier, u64), Window>>);

impl LogThrottle {
    /// Returns the number of withheld lines before a line. Returns `None` if the line must be
    /// withheld.
    fn admit(&self, kind: (Identifier, u64), now: Instant) -> Option<u64> {
        let mut kinds = self.0.lock();
        if kinds.len() >= MAX_KINDS {
            kinds.retain(|_, window| now.duration_since(window.started) < WINDOW);
        }
        // Further kinds are not limited while the table is full.
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            return Some(0);
        }
        let window = kinds.entry(kind).or_insert(Window {
            started: now,
            passed: 0,
            withheld: 0,
        });
        if now.duration_since(window.started) >= WINDOW {
            (window.started, window.passed) = (now, 0);
        }
        if window.passed >= MAX_PER_WINDOW {
            window.withheld += 1;
            return None;
        }
        window.passed += 1;
        Some(std::mem::take(&mut window.withheld))
    }
}

impl<S: Subscriber> Layer<S> for LogThrottle {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        WITHHELD.set(0);
        let content_hash = match *metadata.level() {
            Level::ERROR | Level::WARN => 0,
            Level::INFO => {
                let mut hasher = ContentHasher(DefaultHasher::new());
                event.record(&mut hasher);
                hasher.0.finish()
            }
            // Debug levels are not limited.
            _ => return true,
        };
        let admitted = self.admit((metadata.callsite(), content_hash), Instant::now());
        if admitted.is_none() {
            LOG_LINES_WITHHELD.add(1, &[]);
        }
        WITHHELD.set(admitted.unwrap_or(0));
        admitted.is_some()
    }
}

/// Hasher of the fields of a line.
struct ContentHasher(DefaultHasher);

impl Visit for ContentHasher {
    fn record_str(&mut self, field: &Field, value: &str) {
        (field.index(), value).hash(&mut self.0);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        (field.index(), format!("{value:?}")).hash(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Callsite as _;

    #[test]
    fn repeated_lines_are_withheld_and_counted() {
        let callsite = tracing::callsite! {
            name: "a line", kind: tracing::metadata::Kind::EVENT, fields: a
        };
        let callsite = callsite.metadata().callsite();
        let kind = || (callsite.clone(), 0);
        let (throttle, now) = (LogThrottle::default(), Instant::now());
        let passed = (0..100).filter(|_| throttle.admit(kind(), now).is_some());
        assert_eq!(passed.count(), 20);
        assert_eq!(
            throttle.admit((callsite.clone(), 1), now),
            Some(0),
            "another line"
        );
        assert_eq!(throttle.admit(kind(), now + WINDOW), Some(80));
        assert_eq!(throttle.admit(kind(), now + WINDOW), Some(0));
    }
}
