//! What is counted of placements (container placement, 17), and the one event that has no row.

use std::sync::LazyLock;

use hayward_container_manager_placement::Note;
use opentelemetry::metrics::Counter;
use opentelemetry::{KeyValue, global};

struct Counters {
    requests: Counter<u64>,
    matches: Counter<u64>,
    expirations: Counter<u64>,
    failures: Counter<u64>,
    forced_stop_failures: Counter<u64>,
}

/// Made at the first count, when the process has its exporters.
static COUNTERS: LazyLock<Counters> = LazyLock::new(|| {
    let meter = global::meter("hayward.container_manager");
    let counter = |name: &'static str, unit: &'static str, what: &'static str| {
        let counter = meter.u64_counter(name).with_unit(unit);
        counter.with_description(what).build()
    };
    Counters {
        requests: counter(
            "hayward.placement.requests",
            "{request}",
            "places asked for by placement actions",
        ),
        matches: counter(
            "hayward.placement.matches",
            "{request}",
            "requests that were granted a place",
        ),
        expirations: counter(
            "hayward.placement.expirations",
            "{request}",
            "requests that were granted none in their time",
        ),
        failures: counter(
            "hayward.placement.failures",
            "{action}",
            "placement actions that failed",
        ),
        forced_stop_failures: counter(
            "hayward.placement.forced_stop_failures",
            "{process}",
            "processes that did not end when a forced restart told them to",
        ),
    }
});

/// Attributes are words of closed lists, so the number of series is bounded.
pub fn count(note: &Note) {
    let host = |preferred: bool| {
        let word = if preferred { "preferred" } else { "any" };
        [KeyValue::new("hayward.placement.host", word)]
    };
    match note {
        Note::Requested { preferred } => COUNTERS.requests.add(1, &host(*preferred)),
        Note::Matched { preferred } => COUNTERS.matches.add(1, &host(*preferred)),
        Note::Expired { preferred } => COUNTERS.expirations.add(1, &host(*preferred)),
        Note::Failed(reason) => {
            let reason = KeyValue::new("hayward.placement.reason", reason.as_str());
            COUNTERS.failures.add(1, &[reason]);
        }
        Note::ForceStopFailed {
            uuid,
            processor,
            stand,
        } => {
            COUNTERS.forced_stop_failures.add(1, &[]);
            tracing::warn!(
                event = "FORCE_STOP_FAILED",
                placement = uuid,
                %processor,
                container = %stand.allocation,
                node = %stand.host,
                reason = stand.reason.as_deref(),
                "a forced restart told a process to end, and it has not"
            );
        }
    }
}
