//! Durations of the phases of a round, and its trace.
//!
//! A round that decides something has a trace, with links to the submissions that it decided on.
//! Its last phase is the commit. Each granted allocation is a child of the commit, with a link to
//! its submission. Other services add spans for what happens to the allocation (T5).

use std::time::{Duration, Instant, SystemTime};

use crate::NAME;
use crate::model::AllocationRecord;
use hayward_rm_scheduler_domain::{Phase, Plan};
use hayward_service::metrics::catalogue::{PHASE, ROUND_DURATION};
use hayward_service::telemetry::traces_enabled;
use hayward_service::trace::{self, MAX_LINKS, OpenSpan, SpanBuilder, TraceParent};

/// Most spans of one round. A round with many trees has many parts.
const MAX_PARTS: usize = 64;

/// Name, begin and end of a part, measured from the begin of the round.
type Part = (&'static str, Duration, Duration);

/// Timer that measures each phase of a round.
pub(crate) struct RoundTimer {
    at: SystemTime,
    began: Instant,
    last: Duration,
    parts: Vec<Part>,
    rest: Vec<Part>,
}

impl RoundTimer {
    pub fn begin() -> Self {
        Self {
            at: trace::now(),
            began: Instant::now(),
            last: Duration::ZERO,
            parts: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Ends a phase. It began at the last mark.
    pub fn mark(&mut self, phase: &'static str) {
        let now = self.began.elapsed();
        let from = std::mem::replace(&mut self.last, now);
        if let Some((last, _, to)) = self.parts.last_mut()
            && *last == phase
        {
            *to = now;
        } else if self.parts.len() < MAX_PARTS {
            self.parts.push((phase, from, now));
        } else {
            self.rest.push((phase, from, now));
        }
    }

    pub fn planning_phase_ended(&mut self, phase: Phase) {
        self.mark(match phase {
            Phase::Absorb | Phase::Open => "snapshot",
            Phase::Count => "how_much",
            Phase::Place | Phase::Evict | Phase::Lend => "what_of",
            Phase::Mend => "defragment",
            Phase::Tell => "tell",
        });
    }

    /// Records the total duration of each phase.
    pub fn finish(mut self) {
        self.mark("carry_out");
        let mut sums: Vec<(&'static str, Duration)> = vec![("whole", self.last)];
        for (phase, from, to) in self.parts.iter().chain(&self.rest) {
            let took = to.saturating_sub(*from);
            match sums.iter_mut().find(|(known, _)| known == phase) {
                Some((_, sum)) => *sum += took,
                None => sums.push((phase, took)),
            }
        }
        for (phase, took) in sums {
            ROUND_DURATION.record_duration(took, &[PHASE.is(phase)]);
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
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let root = SpanBuilder::new(NAME, "round")
            .starting_at(self.at)
            .with_attribute("hayward.round.number", i64::try_from(round).unwrap_or(0))
            .with_attribute("hayward.round.grants", count(plan.grants.len()))
            .with_attribute("hayward.round.vacates", count(plan.vacates.len()));
        let root = linked(root, submissions).start();
        let place = root.trace_parent()?;
        for (phase, from, to) in &self.parts {
            let part = SpanBuilder::new(NAME, phase).starting_at(self.at + *from);
            part.with_parent(&place).end_at(self.at + *to);
        }
        Some(RoundTrace::below(root, &place))
    }
}

/// Starts the trace of exchanges that are made before a round is planned and committed with it.
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
    let root = linked(root, submissions).start();
    let place = root.trace_parent()?;
    Some(RoundTrace::below(root, &place))
}

/// Adds one link for each submission.
fn linked<'a>(mut root: SpanBuilder, submissions: impl Iterator<Item = &'a str>) -> SpanBuilder {
    let places = submissions.filter_map(TraceParent::parse).take(MAX_LINKS);
    let mut linked: Vec<TraceParent> = Vec::new();
    for place in places {
        if !linked.contains(&place) {
            linked.push(place.clone());
            root = root.link(place);
        }
    }
    root
}

/// Returns the trace span of an allocation, if it has one.
pub(crate) fn life(held: &AllocationRecord) -> Option<TraceParent> {
    let launch = held.entry.launch.as_ref();
    let within = launch.map_or(&held.within, |launch| &launch.within);
    TraceParent::parse(within.as_deref()?)
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
    fn below(root: OpenSpan, place: &TraceParent) -> Self {
        Self {
            commit: SpanBuilder::new(NAME, "commit").with_parent(place).start(),
            root,
            allocations: Vec::new(),
            committed: false,
        }
    }

    /// Starts the span of an allocation, and returns it.
    pub fn grant(
        &mut self,
        described: SpanBuilder,
        submitted: Option<&str>,
    ) -> Option<TraceParent> {
        let mut life = described.with_parent(&self.commit.trace_parent()?);
        if let Some(submitted) = submitted.and_then(TraceParent::parse) {
            life = life.link(submitted);
        }
        let life = life.start();
        let place = life.trace_parent();
        self.allocations.push(life);
        place
    }

    pub fn committed(mut self, revision: u64) {
        self.committed = true;
        let revision = i64::try_from(revision).unwrap_or(0);
        self.commit.set_attribute("hayward.revision", revision);
    }
}

impl Drop for RoundTrace {
    fn drop(&mut self) {
        if !self.committed {
            self.commit.failed("it was not committed");
            self.root.failed("it was not committed");
            for life in &mut self.allocations {
                life.failed("its round was not committed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_parts_of_one_phase_are_merged() {
        let mut watch = RoundTimer::begin();
        watch.mark("prepare");
        for _ in 0..2 {
            watch.planning_phase_ended(Phase::Absorb);
            watch.planning_phase_ended(Phase::Open);
        }
        watch.planning_phase_ended(Phase::Place);
        let names: Vec<&str> = watch.parts.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, ["prepare", "snapshot", "what_of"]);
        assert!(watch.parts.windows(2).all(|pair| pair[0].2 == pair[1].1));
        for _ in 0..MAX_PARTS {
            watch.planning_phase_ended(Phase::Count);
            watch.planning_phase_ended(Phase::Mend);
        }
        assert_eq!(watch.parts.len(), MAX_PARTS);
    }
}
