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

use super::event_names::{EVENT, named};
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
        let mut at = String::new();
        SystemTime.format_time(&mut Writer::new(&mut at))?;
        line.insert("timestamp".into(), at.into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert(EVENT.into(), Value::Null);
        event.record(&mut Fields(&mut line));
        if line[EVENT].is_null() {
            let text = sentence(&line).unwrap_or(event.metadata().target());
            let text = named(text);
            line[EVENT] = text.into();
        }
        line.insert("target".into(), event.metadata().target().into());
        let withheld = log_throttle::withheld();
        if withheld > 0 {
            line.insert("withheld".into(), withheld.into());
        }
        opentelemetry::Context::map_current(|here| {
            let here = here.span().span_context().clone();
            if here.is_valid() {
                line.insert("trace_id".into(), here.trace_id().to_string().into());
                line.insert("span_id".into(), here.span_id().to_string().into());
            }
        });
        if let Some(span) = context.lookup_current() {
            line.insert("span".into(), span_fields(&span));
        }
        let text = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

/// Returns the message. Some libraries have a name instead.
fn sentence(line: &Map<String, Value>) -> Option<&str> {
    let text = ["message", "name"].into_iter();
    let mut text = text.filter_map(|field| line.get(field).and_then(Value::as_str));
    text.find(|text| !text.is_empty())
}

fn span_fields<'a, S: LookupSpan<'a>>(
    span: &tracing_subscriber::registry::SpanRef<'a, S>,
) -> Value {
    let extensions = span.extensions();
    let written = extensions.get::<FormattedFields<JsonFields>>();
    let fields = written.and_then(|it| serde_json::from_str::<Map<String, Value>>(it).ok());
    let mut fields = fields.unwrap_or_default();
    fields.insert("name".into(), span.name().into());
    fields.into()
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
