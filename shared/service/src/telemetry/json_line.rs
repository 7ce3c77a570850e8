//! A log line as JSON: time, level, event name, message, fields, trace ids, and the innermost span
//! (T4).

use std::fmt;

use opentelemetry::trace::TraceContextExt as _;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::event_names::{EVENT, event_name_of};
use super::log_throttle;

pub(super) struct JsonLine;

impl<S> FormatEvent<S, JsonFields> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        line.insert("timestamp".into(), timestamp.into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert(EVENT.into(), Value::Null);
        event.record(&mut Fields(&mut line));
        if line[EVENT].is_null() {
            let text = message_of(&line).unwrap_or(event.metadata().target());
            let text = event_name_of(text);
            line[EVENT] = text.into();
        }
        line.insert("target".into(), event.metadata().target().into());
        let withheld = log_throttle::withheld_count();
        if withheld > 0 {
            line.insert("withheld".into(), withheld.into());
        }
        opentelemetry::Context::map_current(|context| {
            let span_context = context.span().span_context().clone();
            if span_context.is_valid() {
                line.insert(
                    "trace_id".into(),
                    span_context.trace_id().to_string().into(),
                );
                line.insert("span_id".into(), span_context.span_id().to_string().into());
            }
        });
        if let Some(span) = context.lookup_current() {
            line.insert("span".into(), span_fields(&span));
        }
        let text = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

/// Returns the message. Some libraries log a field `name` instead.
fn message_of(line: &Map<String, Value>) -> Option<&str> {
    let text = ["message", "name"].into_iter();
    let mut text = text.filter_map(|field| line.get(field).and_then(Value::as_str));
    text.find(|text| !text.is_empty())
}

fn span_fields<'a, S: LookupSpan<'a>>(
    span: &tracing_subscriber::registry::SpanRef<'a, S>,
) -> Value {
    let extensions = span.extensions();
    let formatted = extensions.get::<FormattedFields<JsonFields>>();
    let fields = formatted.and_then(|it| serde_json::from_str::<Map<String, Value>>(it).ok());
    let mut fields = fields.unwrap_or_default();
    fields.insert("name".into(), span.name().into());
    fields.into()
}

/// Visitor that adds the fields of an event to the line.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }
}
