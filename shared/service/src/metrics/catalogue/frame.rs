//! Metrics of HTTP requests, both incoming and outgoing, and of the process itself.

use super::super::{Attribute, Group, Metric};
use super::{ALL_SERVICES, EVERYBODY, SERVICE};

pub static METHOD: Attribute =
    Attribute::bounded("http.request.method", "methods of HTTP, and `_OTHER`");
pub static ROUTE: Attribute = Attribute::bounded(
    "http.route",
    "templates of routes in the OpenAPI documents, and `unmatched`",
);
pub static STATUS: Attribute = Attribute::bounded("http.response.status_code", "100 to 599");
/// Whether the request is a long poll. Its duration is mostly waiting, so it is measured
/// separately.
pub static WAITS: Attribute = Attribute::listed("hayward.http.waits", &["true", "false"]);
pub static ERROR: Attribute = Attribute::listed(
    "error.type",
    &["timeout", "connect", "broken", "unreadable"],
);
pub static SERVER: Attribute =
    Attribute::bounded("server.address", "hosts of services in the settings");
pub static PORT: Attribute = Attribute::bounded("server.port", "ports of services in the settings");
pub static SIGNAL: Attribute =
    Attribute::listed("hayward.telemetry.signal", &["spans", "logs", "metrics"]);

pub static HTTP_SERVER: Metric = Metric::histogram(
    "http.server.request.duration",
    "s",
    Group::Http,
    "duration of answered requests",
)
.by(&[&SERVICE, &METHOD, &ROUTE, &STATUS, &WAITS])
.of(ALL_SERVICES);
pub static HTTP_CLIENT: Metric = Metric::histogram(
    "http.client.request.duration",
    "s",
    Group::Http,
    "duration of requests that services and agents sent to services",
)
.by(&[&METHOD, &STATUS, &ERROR, &SERVER, &PORT, &WAITS])
.of(EVERYBODY);
pub static INSECURE: Metric = Metric::gauge(
    "hayward.service.insecure_modes",
    "{mode}",
    Group::Process,
    "insecure modes in use; must be 0 (S3)",
)
.by(&[&SERVICE])
.of(ALL_SERVICES);
pub static CERTIFICATE_LEFT: Metric = Metric::gauge(
    "hayward.certificate.left",
    "s",
    Group::Process,
    "time until a service's certificate expires; below zero it has expired",
)
.by(&[&SERVICE])
.of(ALL_SERVICES)
.rare();
pub static CERTIFICATE_LIFE: Metric = Metric::gauge(
    "hayward.certificate.life",
    "s",
    Group::Process,
    "whole lifetime of that certificate",
)
.by(&[&SERVICE])
.of(ALL_SERVICES)
.rare();
pub static DROPPED: Metric = Metric::counter(
    "hayward.telemetry.dropped",
    "{item}",
    Group::Process,
    "spans, log records and metric exports that no collector accepted (F47)",
)
.by(&[&SIGNAL])
.of(EVERYBODY);
pub static LINES_WITHHELD: Metric = Metric::counter(
    "hayward.log.withheld",
    "{line}",
    Group::Process,
    "log lines left out as repetitions (T4)",
)
.of(EVERYBODY)
.rare();

pub(super) static ALL: &[&Metric] = &[
    &HTTP_SERVER,
    &HTTP_CLIENT,
    &INSECURE,
    &CERTIFICATE_LEFT,
    &CERTIFICATE_LIFE,
    &DROPPED,
    &LINES_WITHHELD,
];
