//! Trace spans of containers, and counters of the agent.
//!
//! No decision depends on this data. After a restart the agent continues with what it still sees.
//! Times are of the clock of this node.

use std::collections::{BTreeMap, BTreeSet};
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
    within: Option<TraceParent>,
    ordered: Option<SystemTime>,
    launched: Option<SystemTime>,
    started: Option<SystemTime>,
    stopped: Option<SystemTime>,
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

    pub fn orphan() {
        AGENT_ORPHANS.add(1, &[]);
    }

    pub fn journal_error() {
        AGENT_JOURNAL_ERRORS.add(1, &[]);
    }

    fn span(&self, id: &AllocationId, name: &'static str, place: &TraceParent) -> SpanBuilder {
        SpanBuilder::new(SERVICE, name)
            .with_parent(place)
            .with_attribute("hayward.allocation.id", id.to_string())
            .with_attribute("hayward.node.name", self.node.to_string())
    }

    /// Records that an order was received.
    pub fn ordered(&mut self, entry: &DesiredEntry) {
        let trace = self.containers.entry(entry.id.clone()).or_default();
        trace.ordered.get_or_insert_with(trace::now);
        if trace.within.is_none() {
            let within = entry.launch.within.as_deref();
            trace.within = within.and_then(TraceParent::parse);
        }
    }

    /// Returns the trace context for log events of the container.
    pub fn parent(&self, id: &AllocationId) -> Option<TraceParent> {
        self.containers.get(id)?.within.clone()
    }

    /// Records that the intent is in the journal and the runtime is instructed.
    pub fn launched(&mut self, id: &AllocationId) {
        let now = trace::now();
        let Some(trace) = self.containers.get_mut(id) else {
            return;
        };
        trace.launched = Some(now);
        let (place, ordered) = (trace.within.clone(), trace.ordered);
        if let (Some(place), Some(ordered)) = (place, ordered) {
            self.span(id, "fetch", &place)
                .starting_at(ordered)
                .end_at(now);
        }
    }

    pub fn started(&mut self, id: &AllocationId) {
        let now = trace::now();
        let trace = self.containers.entry(id.clone()).or_default();
        if trace.started.replace(now).is_some() {
            return;
        }
        let (place, launched) = (trace.within.clone(), trace.launched);
        if let Some(launched) = launched {
            CONTAINER_LAUNCH_DURATION.record_duration(elapsed(launched, now), &[]);
        }
        if let (Some(place), Some(launched)) = (place, launched) {
            self.span(id, "launch", &place)
                .starting_at(launched)
                .end_at(now);
        }
    }

    /// Records that the stop was ordered.
    pub fn stopping(&mut self, id: &AllocationId) {
        if let Some(trace) = self.containers.get_mut(id) {
            trace.stopped.get_or_insert_with(trace::now);
        }
    }

    pub fn ended(&mut self, id: &AllocationId, exit: &Exit) {
        let now = trace::now();
        let Some(trace) = self.containers.get(id).cloned() else {
            return;
        };
        let Some(place) = trace.within else {
            return;
        };
        let cause = format!("{:?}", exit.cause);
        let (name, from) = match (trace.started, trace.launched) {
            (Some(started), _) => ("running", started),
            // The container did not start, or the agent does not know its start.
            (None, Some(launched)) => ("launch", launched),
            // A previous agent started the container.
            (None, None) => ("running", trace.ordered.unwrap_or(now)),
        };
        let whole = self.span(id, name, &place).starting_at(from);
        let whole = whole.with_attribute("hayward.exit.cause", cause);
        whole.end_at(now);
        if let Some(stopped) = trace.stopped {
            self.span(id, "stop", &place)
                .starting_at(stopped)
                .end_at(now);
        }
    }

    pub fn forget(&mut self, id: &AllocationId) {
        self.containers.remove(id);
    }

    /// Drops all containers but the `wanted` ones.
    pub fn retain(&mut self, wanted: impl Fn(&AllocationId) -> bool) {
        let gone: BTreeSet<AllocationId> = self
            .containers
            .keys()
            .filter(|id| !wanted(id))
            .cloned()
            .collect();
        for id in gone {
            self.containers.remove(&id);
        }
    }
}
