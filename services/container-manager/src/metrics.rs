//! Metrics of container-manager: containers by state, exits by cause, and the age of the oldest
//! order without a report. Also the spans that it adds to the trace of an allocation.

use std::collections::BTreeMap;

use hayward_container_manager_domain::{Lifecycle, State};
use hayward_publication::{Batch, Moment};
use hayward_service::metrics::Reading;
use hayward_service::metrics::catalogue::{
    AGENT_GENERATION_LAG, CONTAINER_COUNT, CONTAINER_EXITS, CONTAINER_STATE, EXIT_CAUSE,
};
use hayward_service::trace::{self, SpanBuilder, TraceParent};
use hayward_vocabulary::{Exit, ExitCause, Launch};

use crate::NAME;
use crate::model::{Container, Rows};

/// Value of the state attribute for held containers, which no node has been ordered to start.
const HELD: &str = "held";

/// Returns the names of all states. Each state has a time series, even while no container is in it.
fn state_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(HELD).chain(State::ALL.map(State::as_str))
}

fn cause_name(exit: Option<&Exit>) -> &'static str {
    match exit.map(|exit| exit.cause) {
        Some(ExitCause::Success) => "success",
        Some(ExitCause::UserError) => "user_error",
        Some(ExitCause::UserLimit) => "user_limit",
        Some(ExitCause::LaunchFailed) => "launch_failed",
        Some(ExitCause::Node) => "node",
        Some(ExitCause::Intended) => "intended",
        Some(ExitCause::LaunchUnknown) => "launch_unknown",
        Some(ExitCause::Unknown) | None => "unknown",
    }
}

fn trace_parent(launch: Option<&Launch>) -> Option<TraceParent> {
    TraceParent::parse(launch?.within.as_deref()?)
}

fn new_span(container: &Container, name: &'static str, parent: &TraceParent) -> SpanBuilder {
    SpanBuilder::new(NAME, name)
        .with_parent(parent)
        .with_attribute("hayward.allocation.id", container.id.to_string())
        .with_attribute("hayward.node.name", container.node.to_string())
}

/// Traces the order to start a container. The span ends at the commit, when the node can see the
/// order.
pub(crate) fn trace_start_order(container: &Container, batch: &mut Batch<Rows>) {
    if let Some(parent) = trace_parent(container.launch.as_deref()) {
        let span = new_span(container, "order", &parent).start();
        batch.once_committed(move |_| drop(span));
    }
}

/// Records a transition. `container` still has its old state.
pub(crate) fn record_transition(container: &Container, next: &Lifecycle, moment: &Moment) {
    let before = &container.lifecycle;
    if next.has_ended() && !before.has_ended() {
        CONTAINER_EXITS.add(1, &[EXIT_CAUSE.with(cause_name(next.exit.as_ref()))]);
    }
    if before.launch_revision.is_none()
        && next.launch_revision.is_some()
        && let Some(parent) = trace_parent(container.launch.as_deref())
    {
        // The span begins at the order and ends at the first report of the agent. Both times are
        // by the clock of this service.
        let since = moment.now.ms_since(container.ordered_at);
        let first_report = new_span(container, "first heartbeat", &parent);
        let ordered_at = trace::now_minus(std::time::Duration::from_millis(since));
        first_report.starting_at(ordered_at).end_at(trace::now());
    }
}

/// Returns the number of containers in each state, and the age of the oldest order without a
/// report.
pub(crate) fn readings<'a>(
    containers: impl Iterator<Item = &'a Container>,
    moment: &Moment,
) -> Vec<Reading> {
    let mut counts: BTreeMap<&'static str, u64> = state_names().map(|state| (state, 0)).collect();
    let mut oldest_order_ms = 0;
    for container in containers {
        let lifecycle = &container.lifecycle;
        let is_held = lifecycle.held && !lifecycle.has_ended();
        let state = if is_held {
            HELD
        } else {
            lifecycle.state.as_str()
        };
        *counts.entry(state).or_default() += 1;
        if !is_held && lifecycle.state == State::Ordered {
            oldest_order_ms = oldest_order_ms.max(moment.now.ms_since(container.ordered_at));
        }
    }
    let counts = counts.into_iter();
    let counts = counts.map(|(state, count)| {
        CONTAINER_COUNT.count_reading(count, vec![CONTAINER_STATE.with(state)])
    });
    // `count_reading` converts the milliseconds to a float. The metric is in seconds.
    let lag_ms = AGENT_GENERATION_LAG.count_reading(oldest_order_ms, Vec::new());
    let lag = AGENT_GENERATION_LAG.reading(lag_ms.value / 1_000.0, Vec::new());
    counts.chain([lag]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_values_are_those_of_the_catalogue() {
        assert!(state_names().all(|state| CONTAINER_STATE.allows(state)));
        for cause in [
            ExitCause::Success,
            ExitCause::UserLimit,
            ExitCause::LaunchUnknown,
        ] {
            assert!(EXIT_CAUSE.allows(cause_name(Some(&Exit::of(cause, "")))));
        }
    }
}
