//! Adds entries to the timelines of work.

use hayward_publication::committer::{Batch, Moment};

use crate::store::Rows;
use crate::store::timeline::EventRow;
use crate::work::Work;

/// Maximum number of timeline entries of one piece of work.
const MAX_EVENTS: u32 = 1_000;

impl Work {
    /// Adds an entry to the timeline.
    pub fn record_event(
        &mut self,
        event: impl Into<String>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        if self.events < MAX_EVENTS {
            self.write_event(&event.into(), moment, batch);
        } else if self.events == MAX_EVENTS {
            self.write_event("further events are not stored", moment, batch);
        }
    }

    fn write_event(&mut self, event: &str, moment: &Moment, batch: &mut Batch<Rows>) {
        self.events += 1;
        batch.rows.events.push(EventRow {
            work: self.uuid,
            number: i32::try_from(self.events).unwrap_or(i32::MAX),
            at_ms: moment.now.unix_ms(),
            revision: i64::try_from(moment.revision).unwrap_or(i64::MAX),
            event: replace_nul(event),
        });
    }
}

/// Replaces NUL, which Postgres does not store.
pub fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
