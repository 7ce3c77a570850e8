//! Traces that outlive a request. The trace parent is stored with an object in W3C form
//! (`traceparent`), and later spans refer to it (T5).
//!
//! Without a collector no trace parent is stored.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use hayward_vocabulary::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::global::{self, BoxedSpan};
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _,
};
use opentelemetry::{Context, ContextGuard, KeyValue};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::metrics::catalogue::SERVICE;
use crate::runtime::clock::offset;

/// Whether traces are exported. Telemetry sets it once.
pub(crate) static ENABLED: AtomicBool = AtomicBool::new(false);

/// Returns whether traces are exported. Otherwise no trace parent is stored.
pub fn traces_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Maximum number of links of a span.
pub const MAX_LINKS: usize = 64;

/// Parent of later spans in a sampled trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent(SpanContext);

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.0.trace_id(), self.0.span_id())
    }
}

impl TraceParent {
    /// Parses a trace parent. Returns `None` for an invalid or unsampled one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = parts.next()?;
        let (trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || trace.len() != 32 || span.len() != 16 || flags.len() != 2 {
            return None;
        }
        let context = SpanContext::new(
            TraceId::from_hex(trace).ok()?,
            SpanId::from_hex(span).ok()?,
            TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
            true,
            TraceState::default(),
        );
        Self::from_context(context)
    }

    fn from_context(context: SpanContext) -> Option<Self> {
        (context.is_valid() && context.is_sampled()).then_some(Self(context))
    }

    /// Returns the context of the current span. Returns `None` if traces are not exported.
    pub fn current() -> Option<Self> {
        if !traces_enabled() {
            return None;
        }
        let context = tracing::Span::current().context();
        Self::from_context(context.span().span_context().clone())
    }

    /// Makes this the current context. Log lines belong to it until the guard is dropped.
    pub fn enter(&self) -> ContextGuard {
        self.context().attach()
    }

    fn context(&self) -> Context {
        Context::new().with_remote_span_context(self.0.clone())
    }
}

/// Returns the current time, for spans.
pub fn now() -> SystemTime {
    let system_now = opentelemetry::time::now();
    let ahead_ms = offset::offset_ms().unwrap_or(0);
    let ahead = Duration::from_millis(ahead_ms.unsigned_abs());
    let stepped = if ahead_ms < 0 {
        system_now.checked_sub(ahead)
    } else {
        system_now.checked_add(ahead)
    };
    stepped.unwrap_or(system_now)
}

/// Converts a stored timestamp.
pub fn to_system_time(moment: Timestamp) -> SystemTime {
    let since_epoch_ms = u64::try_from(moment.unix_ms()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(since_epoch_ms)
}

/// Returns the time this long ago.
pub fn now_minus(time: Duration) -> SystemTime {
    now().checked_sub(time).unwrap_or_else(now)
}

/// Builder of a span.
pub struct SpanBuilder {
    name: Cow<'static, str>,
    start_time: SystemTime,
    parent: Option<TraceParent>,
    links: Vec<Link>,
    attributes: Vec<KeyValue>,
}

impl SpanBuilder {
    /// Creates the builder of a span of this service.
    pub fn new(service: &'static str, name: &'static str) -> Self {
        Self {
            name: name.into(),
            start_time: now(),
            parent: None,
            links: Vec::new(),
            attributes: vec![SERVICE.with(service)],
        }
    }

    #[must_use]
    pub fn starting_at(mut self, at: SystemTime) -> Self {
        self.start_time = at;
        self
    }

    #[must_use]
    pub fn with_parent(mut self, parent: &TraceParent) -> Self {
        self.parent = Some(parent.clone());
        self
    }

    #[must_use]
    pub fn with_link(mut self, to: TraceParent) -> Self {
        if self.links.len() < MAX_LINKS {
            self.links.push(Link::with_context(to.0));
        }
        self
    }

    /// Adds an attribute. Spans may contain ids, unlike metrics (T3).
    #[must_use]
    pub fn with_attribute(
        mut self,
        key: &'static str,
        value: impl Into<opentelemetry::Value>,
    ) -> Self {
        self.attributes.push(KeyValue::new(key, value));
        self
    }

    pub fn start(self) -> OpenSpan {
        let parent = self
            .parent
            .as_ref()
            .map(TraceParent::context)
            .unwrap_or_default();
        let tracer = global::tracer("hayward");
        let builder = tracer
            .span_builder(self.name)
            .with_start_time(self.start_time)
            .with_links(self.links)
            .with_attributes(self.attributes);
        OpenSpan(tracer.build_with_context(builder, &parent))
    }

    /// Starts and ends a span of the past.
    pub fn end_at(self, at: SystemTime) {
        self.start().end_at(at);
    }
}

/// A span that has begun. It ends when this value is dropped.
pub struct OpenSpan(BoxedSpan);

impl OpenSpan {
    /// Returns the trace parent of the span. Returns `None` if the span is not sampled.
    pub fn trace_parent(&self) -> Option<TraceParent> {
        TraceParent::from_context(self.0.span_context().clone())
    }

    pub fn end_at(mut self, at: SystemTime) {
        self.0.end_with_timestamp(at);
    }

    /// Marks the span as failed.
    pub fn set_error(&mut self, reason: &'static str) {
        self.0.set_status(Status::error(reason));
    }

    pub fn set_attribute(&mut self, key: &'static str, value: impl Into<opentelemetry::Value>) {
        self.0.set_attribute(KeyValue::new(key, value));
    }
}

/// Reads the trace context from the headers of a request or a response.
pub(crate) fn extract_context(headers: &HeaderMap) -> Context {
    global::get_text_map_propagator(|propagator| propagator.extract(&HeaderReader(headers)))
}

pub(crate) fn inject_context(context: &Context, headers: &mut HeaderMap) {
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(context, &mut HeaderWriter(headers));
    });
}

/// Adds the `traceparent` of the current span.
pub(crate) fn inject_current(headers: &mut HeaderMap) {
    inject_context(&tracing::Span::current().context(), headers);
}

pub(crate) fn trace_id_of(span: &tracing::Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| context.trace_id().to_string())
}

struct HeaderReader<'a>(&'a HeaderMap);

impl Extractor for HeaderReader<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }
    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeaderWriter<'a>(&'a mut HeaderMap);

impl Injector for HeaderWriter<'_> {
    fn set(&mut self, key: &str, value: String) {
        // An empty `tracestate` is omitted.
        if value.is_empty() {
            return;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_parent_is_parsed_and_printed() {
        let parent = TraceParent::parse(TEXT).unwrap();
        assert_eq!(parent.to_string(), TEXT);
        for invalid in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-xyz-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn without_a_collector_there_is_no_trace_parent() {
        assert_eq!(TraceParent::current(), None);
        assert_eq!(
            SpanBuilder::new("rm-scheduler", "round")
                .start()
                .trace_parent(),
            None
        );
    }
}
