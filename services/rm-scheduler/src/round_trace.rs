//! Durations of the phases of a round, and its trace.
//!
//! A round that decides something has a trace, with links to the submissions of the granted work.
//! The last span of the round is the commit. Each granted allocation is a child of the commit, with
//! a link to the submission of its work. Other services add spans for what happens to the
//! allocation (T5).

use std::time::{Duration, Instant, SystemTime};

use crate::NAME;
use crate::model::AllocationRecord;
use hayward_rm_scheduler_domain::{Phase, Plan};
use hayward_service::metrics::catalogue::{PHASE, ROUND_DURATION};
use hayward_service::telemetry::traces_enabled;
use hayward_service::trace::{self, MAX_LINKS, OpenSpan, SpanBuilder, TraceParent};

/// Maximum number of phases with a span in one round. The phases repeat for each tree of pools.
const MAX_SPANS: usize = 64;

/// A part of a round. Both times count from the begin of the round.
struct Part {
    phase: &'static str,
    begin: Duration,
    end: Duration,
}

/// Timer that measures each phase of a round.
pub(crate) struct RoundTimer {
    started_at: SystemTime,
    started: Instant,
    /// End of the last part, counted from the begin of the round.
    last_mark: Duration,
    /// Parts with a span.
    parts: Vec<Part>,
    /// Further parts, which have no span.
    parts_without_span: Vec<Part>,
}

impl RoundTimer {
    pub fn begin() -> Self {
        Self {
            started_at: trace::now(),
            started: Instant::now(),
            last_mark: Duration::ZERO,
            parts: Vec::new(),
            parts_without_span: Vec::new(),
        }
    }

    /// Ends a phase that began at the last mark.
    pub fn mark(&mut self, phase: &'static str) {
        let now = self.started.elapsed();
        let begin = std::mem::replace(&mut self.last_mark, now);
        let part = Part {
            phase,
            begin,
            end: now,
        };
        if let Some(last) = self.parts.last_mut()
            && last.phase == phase
        {
            last.end = now;
        } else if self.parts.len() < MAX_SPANS {
            self.parts.push(part);
        } else {
            self.parts_without_span.push(part);
        }
    }

    /// Ends a phase of the planner. The names are span names and values of the metric attribute
    /// `phase`, so they are part of the interface.
    pub fn planning_phase_ended(&mut self, phase: Phase) {
        self.mark(match phase {
            Phase::Absorb | Phase::Prepare => "snapshot",
            Phase::Count => "how_much",
            Phase::Place | Phase::Preempt | Phase::Lend => "what_of",
            Phase::Defragment => "defragment",
            Phase::Report => "tell",
        });
    }

    /// Records the total duration of each phase.
    pub fn finish(mut self) {
        self.mark("carry_out");
        let mut sums: Vec<(&'static str, Duration)> = vec![("whole", self.last_mark)];
        for part in self.parts.iter().chain(&self.parts_without_span) {
            let duration = part.end.saturating_sub(part.begin);
            match sums.iter_mut().find(|(phase, _)| *phase == part.phase) {
                Some((_, sum)) => *sum += duration,
                None => sums.push((part.phase, duration)),
            }
        }
        for (phase, duration) in sums {
            ROUND_DURATION.record_duration(duration, &[PHASE.with(phase)]);
        }
    }

    /// Starts the trace of a round that decided something. Its commit begins now.
    pub fn trace<'a>(
        &self,
        round: u64,
        plan: &Plan,
        submissions: impl Iterator<Item = &'a str>,
    ) -> Option<RoundTrace> {
        if !traces_enabled() || plan.is_empty() {
            return None;
        }
        let to_i64 = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let root = SpanBuilder::new(NAME, "round")
            .starting_at(self.started_at)
            .with_attribute("hayward.round.number", i64::try_from(round).unwrap_or(0))
            .with_attribute("hayward.round.grants", to_i64(plan.grants.len()))
            .with_attribute("hayward.round.vacates", to_i64(plan.vacates.len()));
        let root = add_links(root, submissions).start();
        let parent = root.trace_parent()?;
        for part in &self.parts {
            let span = SpanBuilder::new(NAME, part.phase).starting_at(self.started_at + part.begin);
            span.with_parent(&parent).end_at(self.started_at + part.end);
        }
        Some(RoundTrace::new(root, &parent))
    }
}

/// Starts the trace of exchanges of placeholders, which precede the plan of a round and are
/// committed together with the round.
pub(crate) fn exchange_trace<'a>(
    round: u64,
    count: usize,
    submissions: impl Iterator<Item = &'a str>,
) -> Option<RoundTrace> {
    if !traces_enabled() || count == 0 {
        return None;
    }
    let root = SpanBuilder::new(NAME, "exchange")
        .with_attribute("hayward.round.number", i64::try_from(round).unwrap_or(0))
        .with_attribute("hayward.round.grants", i64::try_from(count).unwrap_or(0));
    let root = add_links(root, submissions).start();
    let parent = root.trace_parent()?;
    Some(RoundTrace::new(root, &parent))
}

/// Adds one link for each submission.
fn add_links<'a>(mut root: SpanBuilder, submissions: impl Iterator<Item = &'a str>) -> SpanBuilder {
    let parents = submissions.filter_map(TraceParent::parse).take(MAX_LINKS);
    let mut linked: Vec<TraceParent> = Vec::new();
    for parent in parents {
        if !linked.contains(&parent) {
            linked.push(parent.clone());
            root = root.with_link(parent);
        }
    }
    root
}

/// Returns the trace parent of an allocation, if the allocation is traced.
pub(crate) fn allocation_trace_parent(record: &AllocationRecord) -> Option<TraceParent> {
    let launch = record.entry.launch.as_ref();
    let trace_parent = launch.map_or(&record.trace_parent, |launch| &launch.within);
    TraceParent::parse(trace_parent.as_deref()?)
}

/// The trace of a round that is being committed. If it is dropped before the commit, it is marked
/// as failed.
pub(crate) struct RoundTrace {
    commit: OpenSpan,
    root: OpenSpan,
    allocations: Vec<OpenSpan>,
    committed: bool,
}

impl RoundTrace {
    /// Starts the span of the commit now, because committed entries contain its id.
    fn new(root: OpenSpan, parent: &TraceParent) -> Self {
        Self {
            commit: SpanBuilder::new(NAME, "commit").with_parent(parent).start(),
            root,
            allocations: Vec::new(),
            committed: false,
        }
    }

    /// Starts the span of an allocation. Returns the trace parent of spans below it.
    pub fn start_allocation_span(
        &mut self,
        span: SpanBuilder,
        submitted: Option<&str>,
    ) -> Option<TraceParent> {
        let mut span = span.with_parent(&self.commit.trace_parent()?);
        if let Some(submitted) = submitted.and_then(TraceParent::parse) {
            span = span.with_link(submitted);
        }
        let span = span.start();
        let trace_parent = span.trace_parent();
        self.allocations.push(span);
        trace_parent
    }

    pub fn mark_committed(mut self, revision: u64) {
        self.committed = true;
        let revision = i64::try_from(revision).unwrap_or(0);
        self.commit.set_attribute("hayward.revision", revision);
    }
}

impl Drop for RoundTrace {
    fn drop(&mut self) {
        if !self.committed {
            self.commit.set_error("it was not committed");
            self.root.set_error("it was not committed");
            for span in &mut self.allocations {
                span.set_error("its round was not committed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_parts_of_one_phase_are_merged() {
        let mut timer = RoundTimer::begin();
        timer.mark("prepare");
        for _ in 0..2 {
            timer.planning_phase_ended(Phase::Absorb);
            timer.planning_phase_ended(Phase::Prepare);
        }
        timer.planning_phase_ended(Phase::Place);
        let names: Vec<&str> = timer.parts.iter().map(|part| part.phase).collect();
        assert_eq!(names, ["prepare", "snapshot", "what_of"]);
        let mut neighbours = timer.parts.iter().zip(&timer.parts[1..]);
        assert!(neighbours.all(|(earlier, later)| earlier.end == later.begin));
        for _ in 0..MAX_SPANS {
            timer.planning_phase_ended(Phase::Count);
            timer.planning_phase_ended(Phase::Defragment);
        }
        assert_eq!(timer.parts.len(), MAX_SPANS);
    }
}
