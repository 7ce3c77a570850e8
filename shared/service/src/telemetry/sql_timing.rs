//! Durations of SQL statements, from the events of the database library. Each has the first words
//! of the statement but no parameters (T2).

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::metrics::catalogue::{DB_DURATION, DB_SUMMARY, DB_SYSTEM};

/// Target of the events of the library.
pub(super) const TARGET: &str = "sqlx::query";

pub(super) struct SqlTiming;

impl<S: Subscriber> Layer<S> for SqlTiming {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = QueryFields::default();
        event.record(&mut fields);
        if let (Some(summary), Some(seconds)) = (fields.summary, fields.seconds) {
            let attributes = [DB_SYSTEM.with("postgresql"), DB_SUMMARY.with(summary)];
            DB_DURATION.record(seconds, &attributes);
        }
    }
}

#[derive(Default)]
struct QueryFields {
    summary: Option<String>,
    seconds: Option<f64>,
}

impl Visit for QueryFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "elapsed_secs" {
            self.seconds = Some(value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "summary" {
            // The library shortens a long statement and appends an ellipsis.
            self.summary = Some(value.trim_end_matches(" …").to_owned());
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn fmt::Debug) {}
}
