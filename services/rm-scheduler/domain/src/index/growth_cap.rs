//! The cap: how many processes a piece of work can use in this round.

use hayward_vocabulary::WorkKind;

use super::{FleetIndex, WorkRecord};
use crate::{
    ids::WorkIx,
    input::snapshot::{Class, Growth, Policy, Tunables},
    output::plan::CapParts,
};

/// Cap of a piece of work. Its parts are computed on demand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cap {
    /// Cap from the limit and the remaining tasks alone. It does not depend on holdings, so it is
    /// used for sorting.
    pub base: u64,
    /// Cap without the limits that apply while the work grows.
    pub steady: u64,
    /// Cap for this round. It limits the entitlement.
    pub now: u64,
    /// Cap for lent space: `now`, or the cap without the limits of growth if the work may grow
    /// into free space (TC-10).
    pub lent: u64,
    /// Value of `lent` before free space was considered. Work that holds more shrinks.
    pub before_space: u64,
    /// True if the duration of a task is unknown.
    pub starting: bool,
}

impl Cap {
    /// Returns the highest of these caps.
    pub fn highest(&self) -> u64 {
        self.base
            .max(self.steady)
            .max(self.now)
            .max(self.lent)
            .max(self.before_space)
    }

    /// Returns a cap with this number in all fields.
    fn uniform(processes: u64) -> Self {
        Self {
            base: processes,
            steady: processes,
            now: processes,
            lent: processes,
            before_space: processes,
            starting: false,
        }
    }

    /// Returns the parts of the cap for work with these holdings.
    pub fn parts(&self, index: &FleetIndex, work: WorkIx, held: HeldCounts) -> CapParts {
        let work_record = &index.work[work];
        match work_record.class {
            Some(class) if has_growth_limits(work_record) => {
                self.job_parts(held, &index.classes[class].growth)
            }
            _ => self.base_part(),
        }
    }

    fn base_part(&self) -> CapParts {
        CapParts {
            base: self.base,
            ..CapParts::default()
        }
    }

    /// Returns the parts of the cap of a job. The prediction is taken from `steady`, so it is not
    /// computed twice.
    fn job_parts(&self, held: HeldCounts, rules: &GrowthRules) -> CapParts {
        let mut parts = self.base_part();
        if self.starting {
            parts.initialization = (rules.initial > 0).then_some(rules.initial);
            return parts;
        }
        let reached_count = held.reached_count(rules);
        if rules.doubling && reached_count == 0 {
            // Work that no longer holds anything starts again, regardless of predictions.
            parts.initialization = Some(rules.initial.max(1));
            return parts;
        }
        parts.doubling = rules.doubling.then(|| reached_count.saturating_mul(2));
        parts.prediction = (self.steady != self.base).then_some(self.steady);
        parts
    }
}

/// Growth settings of one class.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent setting"
)]
pub(crate) struct GrowthRules {
    initial: u64,
    doubling: bool,
    prediction: bool,
    /// Milliseconds that a prediction looks ahead after a process has started.
    lookahead_ms: u64,
    /// True if leaving processes count as reached, so that the work that replaces them does not
    /// start to double again.
    keep_reached: bool,
    /// True if the limits of growth do not limit lent space.
    grow_into_free_space: bool,
}

impl GrowthRules {
    pub fn new(tunables: &Tunables, class: &Class) -> Self {
        // Work outside fair share grows by the settings of the fleet.
        let fleet_growth = Growth::default();
        let growth = if class.policy == Policy::FairShare {
            &class.growth
        } else {
            &fleet_growth
        };
        let fudge_ms = growth
            .prediction_fudge_ms
            .unwrap_or(tunables.prediction_fudge_ms);
        Self {
            initial: growth
                .initialization_cap
                .unwrap_or(tunables.initialization_cap),
            doubling: growth
                .expand_by_doubling
                .unwrap_or(tunables.expand_by_doubling),
            prediction: growth.use_prediction.unwrap_or(tunables.use_prediction),
            lookahead_ms: tunables.cycle_ms + fudge_ms,
            keep_reached: tunables.settings.steady_counts,
            grow_into_free_space: tunables.settings.grow_into_free_space,
        }
    }
}

/// Processes that one piece of work holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldCounts {
    pub current: u64,
    /// Number of processes that are leaving.
    pub leaving: u64,
    /// Mean time that the held processes took to start, in milliseconds.
    pub mean_start_ms: u64,
}

impl HeldCounts {
    /// Returns the largest number of processes that the work has already reached.
    fn reached_count(&self, rules: &GrowthRules) -> u64 {
        self.current + if rules.keep_reached { self.leaving } else { 0 }
    }
}

/// Returns the cap of work with these holdings, before space is considered.
pub(crate) fn compute_cap(index: &FleetIndex, work: WorkIx, held: HeldCounts) -> Cap {
    let work_record = &index.work[work];
    let Some(class) = work_record.class else {
        return Cap::default();
    };
    if has_growth_limits(work_record) {
        compute_job_cap(work_record, held, &index.classes[class].growth)
    } else if work_record.completing {
        Cap::uniform(held.current)
    } else {
        // Instances and reservations have one process, which growth rules never remove.
        Cap::uniform(work_record.max_processes.min(1))
    }
}

/// Returns true if growth rules limit the work: at the start, by doubling or by prediction.
fn has_growth_limits(work_record: &WorkRecord) -> bool {
    work_record.kind == WorkKind::Job && !work_record.completing
}

fn compute_job_cap(demand: &WorkRecord, held: HeldCounts, rules: &GrowthRules) -> Cap {
    let current = held.current;
    let threads = u64::from(demand.threads.max(1));
    // Work never shrinks because its tasks run out.
    let wanted = demand.remaining_tasks.div_ceil(threads).max(current);
    let limit = if demand.keeps_what_it_holds {
        current
    } else {
        demand.max_processes
    };
    let base = wanted.min(limit);
    let starting = !demand.runnable || demand.task_ms == 0;
    let mut potential = base;
    if rules.prediction && !starting {
        let horizon = held.mean_start_ms + rules.lookahead_ms;
        let predicted = predict_processes(demand, current, horizon, base);
        if predicted < base {
            potential = predicted.max(current);
        }
        if rules.keep_reached {
            // A lowered limit applies regardless of predictions.
            potential = potential.min(base);
        }
    }
    // These limits apply while the work grows.
    let reached_count = held.reached_count(rules);
    let now = match (starting, rules.doubling) {
        (true, _) if rules.initial > 0 => potential.min(rules.initial),
        (true, _) | (false, false) => potential,
        // Work that no longer holds anything starts again, regardless of predictions.
        (false, true) if reached_count == 0 => base.min(rules.initial.max(1)),
        (false, true) => potential.min(reached_count.saturating_mul(2)),
    };
    let lent = if rules.grow_into_free_space {
        potential.max(now)
    } else {
        now
    };
    let cap = Cap {
        base,
        steady: if starting { now } else { potential.max(now) },
        now,
        lent,
        before_space: lent,
        starting,
    };
    debug_assert_eq!(now, cap.job_parts(held, rules).least());
    cap
}

/// Returns the number of processes that are still useful once a new one could have started.
fn predict_processes(demand: &WorkRecord, current: u64, horizon_ms: u64, base: u64) -> u64 {
    let threads = u64::from(demand.threads.max(1));
    let done = count_tasks_done(horizon_ms, current, threads, demand.task_ms.max(1));
    let left = demand.remaining_tasks.saturating_sub(done);
    match (left.div_ceil(threads), current) {
        (0, 0) => base,
        (0, current) => current,
        (predicted, _) => predicted,
    }
}

/// Returns the number of tasks that these processes finish in this time, rounded half up. Numbers
/// that fit into 64 bits use a faster division.
fn count_tasks_done(ms: u64, processes: u64, threads: u64, task_ms: u64) -> u64 {
    let rounded = |time: u64| {
        let time = time.checked_mul(2)?.checked_add(task_ms)?;
        Some(time / task_ms.checked_mul(2)?)
    };
    let time = ms
        .checked_mul(processes)
        .and_then(|time| time.checked_mul(threads));
    time.and_then(rounded).unwrap_or_else(|| {
        let time = u128::from(ms) * u128::from(processes) * u128::from(threads);
        let task_ms = u128::from(task_ms);
        let tasks = time.saturating_mul(2).saturating_add(task_ms) / (2 * task_ms);
        u64::try_from(tasks).unwrap_or(u64::MAX)
    })
}
