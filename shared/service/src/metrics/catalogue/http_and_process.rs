//! Metrics of HTTP requests, both incoming and outgoing, and of the process itself.

use super::super::{Attribute, Group, Metric};
use super::{ALL_SERVICES, ALL_SERVICES_AND_AGENTS, SERVICE};

pub static METHOD: Attribute =
    Attribute::bounded("http.request.method", "methods of HTTP, and `_OTHER`");
pub static ROUTE: Attribute = Attribute::bounded(
    "http.route",
    "templates of routes in the OpenAPI documents, and `unmatched`",
);
pub static STATUS: Attribute = Attribute::bounded("http.response.status_code", "100 to 599");
/// Whether the request is a long poll. Its duration is mostly waiting, so it is measured
/// separately.
pub static IS_LONG_POLL: Attribute = Attribute::listed("hayward.http.waits", &["true", "false"]);
/// Reason why a request got no usable response: too slow, no connection, an incomplete response, or
/// a response of another shape.
pub static ERROR_TYPE: Attribute = Attribute::listed(
    "error.type",
    &["timeout", "connect", "broken", "unreadable"],
);
pub static SERVER: Attribute =
    Attribute::bounded("server.address", "hosts of services in the settings");
pub static PORT: Attribute = Attribute::bounded("server.port", "ports of services in the settings");
pub static SIGNAL: Attribute =
    Attribute::listed("hayward.telemetry.signal", &["spans", "logs", "metrics"]);

pub static HTTP_SERVER_DURATION: Metric = Metric::histogram(
    "http.server.request.duration",
    "s",
    Group::Http,
    "duration of answered requests",
)
.with_attributes(&[&SERVICE, &METHOD, &ROUTE, &STATUS, &IS_LONG_POLL])
.reported_by(ALL_SERVICES);
pub static HTTP_CLIENT_DURATION: Metric = Metric::histogram(
    "http.client.request.duration",
    "s",
    Group::Http,
    "duration of requests that services and agents sent to services",
)
.with_attributes(&[&METHOD, &STATUS, &ERROR_TYPE, &SERVER, &PORT, &IS_LONG_POLL])
.reported_by(ALL_SERVICES_AND_AGENTS);
pub static INSECURE_MODES: Metric = Metric::gauge(
    "hayward.service.insecure_modes",
    "{mode}",
    Group::Process,
    "insecure modes in use; must be 0 (S3)",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES);
pub static CERTIFICATE_REMAINING: Metric = Metric::gauge(
    "hayward.certificate.left",
    "s",
    Group::Process,
    "time until a service's certificate expires; below zero it has expired",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES)
.rare();
pub static CERTIFICATE_LIFETIME: Metric = Metric::gauge(
    "hayward.certificate.life",
    "s",
    Group::Process,
    "whole lifetime of a service's certificate",
)
.with_attributes(&[&SERVICE])
.reported_by(ALL_SERVICES)
.rare();
pub static TELEMETRY_DROPPED: Metric = Metric::counter(
    "hayward.telemetry.dropped",
    "{item}",
    Group::Process,
    "spans, log records and metric exports that no collector accepted (F47)",
)
.with_attributes(&[&SIGNAL])
.reported_by(ALL_SERVICES_AND_AGENTS);
pub static LOG_LINES_WITHHELD: Metric = Metric::counter(
    "hayward.log.withheld",
    "{line}",
    Group::Process,
    "log lines left out as repetitions (T4)",
)
.reported_by(ALL_SERVICES_AND_AGENTS)
.rare();

pub(super) static ALL: &[&Metric] = &[
    &HTTP_SERVER_DURATION,
    &HTTP_CLIENT_DURATION,
    &INSECURE_MODES,
    &CERTIFICATE_REMAINING,
    &CERTIFICATE_LIFETIME,
    &TELEMETRY_DROPPED,
    &LOG_LINES_WITHHELD,
];
