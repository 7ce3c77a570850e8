//! State log of an application. It is bounded: the oldest entries are dropped and counted.

use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum number of entries per application.
pub const MAX_ENTRIES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<S> {
    pub state: S,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLog<S> {
    pub entries: Vec<Entry<S>>,
    /// Number of dropped entries.
    #[serde(default)]
    pub dropped: u64,
}

impl<S> Default for StateLog<S> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            dropped: 0,
        }
    }
}

impl<S: Copy> StateLog<S> {
    pub fn record(&mut self, state: S, at: Timestamp) {
        if self.entries.len() == MAX_ENTRIES {
            self.entries.remove(0);
            self.dropped += 1;
        }
        self.entries.push(Entry { state, at });
    }

    /// Returns the states alone, oldest first.
    pub fn states(&self) -> Vec<S> {
        self.entries.iter().map(|entry| entry.state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_are_dropped_first_and_counted() {
        let mut log = StateLog::default();
        for number in 0..MAX_ENTRIES + 3 {
            log.record(number, Timestamp::default());
        }
        assert_eq!((log.entries.len(), log.dropped), (MAX_ENTRIES, 3));
        assert_eq!(log.states()[0], 3);
    }
}
