//! Trace spans of containers, and counters of the agent.
//!
//! No decision depends on this data. It is not stored, so after a restart the agent knows only the
//! steps that it sees itself. Times are of the clock of this node.

use std::collections::BTreeMap;
use std::time::SystemTime;

use hayward_container_manager_api::DesiredEntry;
use hayward_service::metrics::catalogue::{
    AGENT_JOURNAL_ERRORS, AGENT_ORPHANS, CONTAINER_LAUNCH_DURATION,
};
use hayward_service::trace::{self, SpanBuilder, TraceParent};
use hayward_vocabulary::{AllocationId, Exit, NodeName};

const SERVICE: &str = "node-agent";

/// Times of the steps of a container that this agent has seen.
#[derive(Debug, Clone, Default)]
struct ContainerTrace {
    parent: Option<TraceParent>,
    ordered_at: Option<SystemTime>,
    launched_at: Option<SystemTime>,
    started_at: Option<SystemTime>,
    stopped_at: Option<SystemTime>,
}

pub struct Traces {
    node: NodeName,
    containers: BTreeMap<AllocationId, ContainerTrace>,
}

fn elapsed(from: SystemTime, to: SystemTime) -> std::time::Duration {
    to.duration_since(from).unwrap_or_default()
}

impl Traces {
    pub fn new(node: NodeName) -> Self {
        AGENT_JOURNAL_ERRORS.add(0, &[]);
        AGENT_ORPHANS.add(0, &[]);
        Self {
            node,
            containers: BTreeMap::new(),
        }
    }

    pub fn count_orphan() {
        AGENT_ORPHANS.add(1, &[]);
    }

    pub fn count_journal_error() {
        AGENT_JOURNAL_ERRORS.add(1, &[]);
    }

    fn span(&self, id: &AllocationId, name: &'static str, parent: &TraceParent) -> SpanBuilder {
        SpanBuilder::new(SERVICE, name)
            .with_parent(parent)
            .with_attribute("hayward.allocation.id", id.to_string())
            .with_attribute("hayward.node.name", self.node.to_string())
    }

    /// Records that an order was received.
    pub fn record_order(&mut self, entry: &DesiredEntry) {
        let trace = self.containers.entry(entry.id.clone()).or_default();
        trace.ordered_at.get_or_insert_with(trace::now);
        if trace.parent.is_none() {
            let within = entry.launch.within.as_deref();
            trace.parent = within.and_then(TraceParent::parse);
        }
    }

    /// Returns the trace context for log events of the container.
    pub fn parent(&self, id: &AllocationId) -> Option<TraceParent> {
        self.containers.get(id)?.parent.clone()
    }

    /// Records that the intent is in the journal and the runtime is instructed.
    pub fn record_launch(&mut self, id: &AllocationId) {
        let now = trace::now();
        let Some(trace) = self.containers.get_mut(id) else {
            return;
        };
        trace.launched_at = Some(now);
        let (parent, ordered_at) = (trace.parent.clone(), trace.ordered_at);
        if let (Some(parent), Some(ordered_at)) = (parent, ordered_at) {
            self.span(id, "fetch", &parent)
                .starting_at(ordered_at)
                .end_at(now);
        }
    }

    /// Records that the program has started, and ends the span of the launch.
    pub fn record_start(&mut self, id: &AllocationId) {
        let now = trace::now();
        let trace = self.containers.entry(id.clone()).or_default();
        if trace.started_at.replace(now).is_some() {
            return;
        }
        let (parent, launched_at) = (trace.parent.clone(), trace.launched_at);
        if let Some(launched_at) = launched_at {
            CONTAINER_LAUNCH_DURATION.record_duration(elapsed(launched_at, now), &[]);
        }
        if let (Some(parent), Some(launched_at)) = (parent, launched_at) {
            self.span(id, "launch", &parent)
                .starting_at(launched_at)
                .end_at(now);
        }
    }

    /// Records that the stop was ordered.
    pub fn record_stop(&mut self, id: &AllocationId) {
        if let Some(trace) = self.containers.get_mut(id) {
            trace.stopped_at.get_or_insert_with(trace::now);
        }
    }

    /// Records that the container has ended, and ends its spans.
    pub fn record_end(&mut self, id: &AllocationId, exit: &Exit) {
        let now = trace::now();
        let Some(trace) = self.containers.get(id).cloned() else {
            return;
        };
        let Some(parent) = trace.parent else {
            return;
        };
        let cause = format!("{:?}", exit.cause);
        let (name, start) = match (trace.started_at, trace.launched_at) {
            (Some(started_at), _) => ("running", started_at),
            // The container did not start, or the agent does not know its start.
            (None, Some(launched_at)) => ("launch", launched_at),
            // A previous agent started the container.
            (None, None) => ("running", trace.ordered_at.unwrap_or(now)),
        };
        let span = self.span(id, name, &parent).starting_at(start);
        let span = span.with_attribute("hayward.exit.cause", cause);
        span.end_at(now);
        if let Some(stopped_at) = trace.stopped_at {
            self.span(id, "stop", &parent)
                .starting_at(stopped_at)
                .end_at(now);
        }
    }

    pub fn forget(&mut self, id: &AllocationId) {
        self.containers.remove(id);
    }

    /// Drops the traces of all containers that are not wanted any more.
    pub fn retain(&mut self, is_wanted: impl Fn(&AllocationId) -> bool) {
        self.containers.retain(|id, _| is_wanted(id));
    }
}
