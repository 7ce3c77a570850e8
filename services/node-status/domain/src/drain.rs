//! Judges the progress of a drain. A node is drained only if the agent reports no running
//! container and the scheduler reports no remaining allocation (I17).

use crate::format::duration_text;

/// Milliseconds after the deadline at which a drain with remaining work fails. Work needs up to a
/// minute to stop.
pub const LATE_MS: u64 = 60_000;

/// Stage of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStage {
    Draining,
    Paused,
    Drained,
    /// The deadline passed and work remains. The drain stays active and may still finish.
    Failed,
}

/// Progress that rm-scheduler reports for this drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerProgress {
    pub remaining: u64,
    /// Remaining allocations that the scheduler never moves: reservations, and allocations that it
    /// cannot reach.
    pub stuck: u64,
}

/// Input of [`judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainFacts {
    pub before: DrainStage,
    pub paused: bool,
    /// Milliseconds since the deadline. `None` before the deadline and without one.
    pub late_ms: Option<u64>,
    /// `None` until rm-scheduler applies the drain.
    pub scheduler: Option<SchedulerProgress>,
    /// Running containers in the last complete report of the agent since the drain began. `None`
    /// before the first report.
    pub running: Option<u64>,
}

/// Returns the stage of a drain, and its reason as text.
pub fn judge(facts: &DrainFacts) -> (DrainStage, String) {
    let DrainFacts {
        before,
        scheduler,
        running,
        ..
    } = *facts;
    let is_empty = scheduler.map(|scheduler| scheduler.remaining == 0);
    let none_running = running.map(|count| count == 0);
    // A drained node stays drained until a report contradicts it, so that a restart of this service
    // changes nothing.
    let stays_drained =
        before == DrainStage::Drained && is_empty != Some(false) && none_running != Some(false);
    if stays_drained || (is_empty == Some(true) && none_running == Some(true)) {
        let why = "no container runs and no allocation remains";
        return (DrainStage::Drained, why.to_owned());
    }
    let why = pending_work_text(facts);
    if facts.late_ms.is_some_and(|late| is_late(late, scheduler)) {
        return (
            DrainStage::Failed,
            format!("the deadline has passed; {why}"),
        );
    }
    if facts.paused {
        return (DrainStage::Paused, format!("paused by the operator; {why}"));
    }
    (DrainStage::Draining, why)
}

/// Returns whether the drain fails: because its work does not end, or because no remaining
/// allocation can end.
fn is_late(late_ms: u64, scheduler: Option<SchedulerProgress>) -> bool {
    let never_ends = scheduler
        .is_some_and(|progress| progress.remaining > 0 && progress.stuck >= progress.remaining);
    never_ends || late_ms >= LATE_MS
}

fn pending_work_text(facts: &DrainFacts) -> String {
    match (facts.scheduler, facts.running) {
        (None, _) => "rm-scheduler has not applied it yet".to_owned(),
        (Some(scheduler), _) if scheduler.remaining > 0 && scheduler.stuck > 0 => format!(
            "{} allocations remain, and {} of them never move by themselves",
            scheduler.remaining, scheduler.stuck
        ),
        (Some(scheduler), _) if scheduler.remaining > 0 => {
            format!("{} allocations remain", scheduler.remaining)
        }
        (Some(_), None) => "no allocation remains; the agent has not reported yet that no \
                            container runs"
            .to_owned(),
        (Some(_), Some(running)) => {
            format!("no allocation remains, but {running} containers still run")
        }
    }
}

/// Returns the next change of the drain, as text.
pub fn next_change_text(stage: DrainStage, has_deadline: bool) -> String {
    match (stage, has_deadline) {
        (DrainStage::Drained, _) => {
            "takes no work until the drain is cancelled or the node is forgotten".to_owned()
        }
        (DrainStage::Paused, _) => "nothing moves until it is resumed".to_owned(),
        (DrainStage::Failed, _) => {
            "stays failed until nothing remains, or it is cancelled".to_owned()
        }
        (DrainStage::Draining, true) => format!(
            "remaining work is moved regardless of its disruption limits, and the drain fails \
             if some of it stays {} longer",
            duration_text(LATE_MS)
        ),
        (DrainStage::Draining, false) => {
            "continues until the node is empty; there is no deadline".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUSY: Option<SchedulerProgress> = Some(SchedulerProgress {
        remaining: 2,
        stuck: 0,
    });
    const RESERVED: Option<SchedulerProgress> = Some(SchedulerProgress {
        remaining: 2,
        stuck: 2,
    });
    const CLEAR: Option<SchedulerProgress> = Some(SchedulerProgress {
        remaining: 0,
        stuck: 0,
    });

    #[test]
    fn each_combination_of_reports_gives_its_stage() {
        use DrainStage::{Drained, Draining, Failed, Paused};
        // (before, paused, late, scheduler, running) -> stage
        let table = [
            ((Draining, false, None, None, None), Draining),
            ((Draining, false, None, None, Some(0)), Draining),
            ((Draining, false, None, BUSY, Some(2)), Draining),
            // One report alone is not enough.
            ((Draining, false, None, CLEAR, None), Draining),
            ((Draining, false, None, CLEAR, Some(1)), Draining),
            ((Draining, false, None, BUSY, Some(0)), Draining),
            ((Draining, false, None, CLEAR, Some(0)), Drained),
            ((Paused, true, None, CLEAR, Some(0)), Drained),
            ((Draining, true, None, BUSY, Some(2)), Paused),
            ((Paused, false, None, BUSY, Some(2)), Draining),
            // After a restart of this service, the reports are unknown and the stage is stored.
            ((Drained, false, None, None, None), Drained),
            ((Drained, false, None, None, Some(0)), Drained),
            ((Drained, false, None, CLEAR, None), Drained),
            // A contradicting report reopens the drain.
            ((Drained, false, None, None, Some(1)), Draining),
            ((Drained, false, None, BUSY, None), Draining),
            // After the deadline, work has one minute to end. Work that never moves has none.
            ((Draining, false, Some(0), BUSY, Some(2)), Draining),
            ((Draining, false, Some(LATE_MS), BUSY, Some(2)), Failed),
            ((Draining, false, Some(0), RESERVED, Some(2)), Failed),
            ((Draining, false, Some(LATE_MS), None, None), Failed),
            ((Failed, false, Some(LATE_MS), CLEAR, Some(0)), Drained),
            ((Failed, false, None, BUSY, Some(2)), Draining),
        ];
        for ((before, paused, late_ms, scheduler, running), stage) in table {
            let facts = DrainFacts {
                before,
                paused,
                late_ms,
                scheduler,
                running,
            };
            assert_eq!(judge(&facts).0, stage, "{facts:?}");
        }
    }

    proptest! {
        /// No report may contradict a drained stage (I17).
        #[test]
        fn a_node_is_never_drained_against_a_report(
            before in prop::sample::select(vec![
                DrainStage::Draining, DrainStage::Paused, DrainStage::Drained, DrainStage::Failed,
            ]),
            paused: bool,
            late_ms in prop::option::of(0..120_000_u64),
            scheduler in prop::option::of((0..3_u64, 0..3_u64)),
            running in prop::option::of(0..3_u64),
        ) {
            let scheduler = scheduler
                .map(|(remaining, stuck)| SchedulerProgress { remaining, stuck });
            let facts = DrainFacts { before, paused, late_ms, scheduler, running };
            let (stage, why) = judge(&facts);
            prop_assert!(!why.is_empty());
            if stage == DrainStage::Drained {
                prop_assert!(running.unwrap_or(0) == 0);
                prop_assert!(scheduler.is_none_or(|scheduler| scheduler.remaining == 0));
                let both = scheduler.is_some() && running.is_some();
                prop_assert!(both || before == DrainStage::Drained);
            }
        }
    }
}
