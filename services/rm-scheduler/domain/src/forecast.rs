//! Forecast: runs the production planner, round after round, on a copy of the fleet.
//!
//! In: a snapshot, changes to it, and a limit of rounds. Out: two timelines, with and without the
//! changes. Their difference is the effect of the changes.
//!
//! Rules: from one round to the next, time advances by one cycle. By then, granted processes run,
//! vacated ones are gone, and a job that runs has finished a first task. A forecast ends when
//! nothing changes any more, or at the limit.
//!
//! The number of remaining tasks never falls, so a forecast does not show when work is done. It
//! shows how the nodes are shared until then. It reads nothing but its input.

mod changes;
mod simulated_fleet;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, UserName, WorkId};

use crate::{
    FairShare, Plan, Planner, Reason, Snapshot, Verdict, Verdicts,
    output::plan::{Receipt, Shares, VacateReason},
};

pub use changes::Changes;
use simulated_fleet::SimulatedFleet;

/// Start of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStart {
    /// Number of the round from now on. 1 is the next round.
    pub round: u64,
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub quanta: u64,
}

/// Departure of one process, which was vacated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    pub round: u64,
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    pub quanta: u64,
    pub reason: VacateReason,
    pub detail: String,
    /// True if the process started in this forecast, so that it does not exist in the fleet.
    pub forecast: bool,
    /// Beneficiary and cost. `None` unless the process is preempted.
    pub receipt: Option<Receipt>,
}

/// Rounds from one snapshot until nothing changes any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Number of planned rounds.
    pub rounds: u64,
    /// True if further rounds would change nothing. False if the limit of rounds came first.
    pub settled: bool,
    pub starts: Vec<ProcessStart>,
    pub leaves: Vec<Departure>,
    /// Verdicts of the last round.
    pub verdicts: Verdicts,
    /// Shares of the last round.
    pub shares: Shares,
    /// Work in queues in the last round. It is not part of the shares.
    pub queued: BTreeMap<WorkId, QueuedWork>,
}

/// Work in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedWork {
    pub user: UserName,
    pub queue: String,
    /// Number of processes, without those that leave.
    pub current: u64,
}

/// Two timelines from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// Present number of processes by work, without those that leave.
    pub now: BTreeMap<WorkId, u64>,
    /// Timeline without the changes.
    pub without: Timeline,
    /// Timeline with the changes.
    pub with: Timeline,
}

/// Numbers of processes of one piece of work, with and without the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessCountChange {
    pub user: UserName,
    /// Class or queue of the work.
    pub class: String,
    /// Present number of processes.
    pub now: u64,
    /// Number at the end, without the changes.
    pub without: u64,
    /// Number at the end, with the changes.
    pub with: u64,
}

/// Forecasts the effect of changes to a fleet without queues, over at most `rounds` rounds.
pub fn forecast(snapshot: &Snapshot, changes: &Changes, rounds: u64) -> Forecast {
    let mut changed = snapshot.clone();
    changes.apply(&mut changed);
    let task_ms = &changes.task_ms;
    compare(
        &FairShare,
        snapshot,
        changed,
        task_ms,
        &mut stop_after(rounds),
    )
}

/// Returns a `may_continue` for [`compare`] that stops after this many rounds.
pub fn stop_after(rounds: u64) -> impl FnMut(u64) -> bool {
    move |planned| planned < rounds
}

/// Forecasts the effect of any difference between two snapshots, for example of another policy.
///
/// `task_ms` is the duration of a task, for work that has not finished one. `may_continue` gets the
/// number of planned rounds before each round, and stops both timelines in the same round.
pub fn compare(
    planner: &dyn Planner,
    snapshot: &Snapshot,
    changed: Snapshot,
    task_ms: &BTreeMap<WorkId, u64>,
    may_continue: &mut dyn FnMut(u64) -> bool,
) -> Forecast {
    let no_task_ms = BTreeMap::new();
    let unchanged = || RunningTimeline::new(planner, snapshot.clone(), &no_task_ms);
    let mut without = (*snapshot != changed).then(unchanged);
    let mut with = RunningTimeline::new(planner, changed, task_ms);
    let mut planned = 0;
    while may_continue(planned) {
        let without_ended = without.as_mut().is_none_or(|running| !running.step());
        if !with.step() && without_ended {
            break;
        }
        planned += 1;
    }
    let with = with.timeline;
    let without = without.map_or_else(|| with.clone(), |running| running.timeline);
    let mut now: BTreeMap<WorkId, u64> = BTreeMap::new();
    let allocations = snapshot.allocations.values();
    for allocation in allocations.filter(|allocation| !allocation.leaving) {
        *now.entry(allocation.work.clone()).or_default() += 1;
    }
    Forecast { now, without, with }
}

impl Forecast {
    /// Returns the work whose final number of processes differs between the two timelines.
    pub fn moves(&self) -> BTreeMap<WorkId, ProcessCountChange> {
        let mut moves: BTreeMap<WorkId, ProcessCountChange> = BTreeMap::new();
        for (timeline, has_changes) in [(&self.without, false), (&self.with, true)] {
            for (work, (user, class, current)) in timeline.processes() {
                let entry = moves
                    .entry(work.clone())
                    .or_insert_with(|| ProcessCountChange {
                        user: user.clone(),
                        class: class.clone(),
                        now: self.now.get(work).copied().unwrap_or(0),
                        without: 0,
                        with: 0,
                    });
                let count = if has_changes {
                    entry.class.clone_from(class);
                    &mut entry.with
                } else {
                    &mut entry.without
                };
                *count = current;
            }
        }
        moves.retain(|_, change| change.without != change.with);
        moves
    }
}

/// Timeline that is being planned.
struct RunningTimeline<'a> {
    planner: &'a dyn Planner,
    timeline: Timeline,
    fleet: SimulatedFleet<'a>,
    /// Number of successive rounds that changed nothing.
    quiet_rounds: u64,
}

impl<'a> RunningTimeline<'a> {
    fn new(
        planner: &'a dyn Planner,
        snapshot: Snapshot,
        task_ms: &'a BTreeMap<WorkId, u64>,
    ) -> Self {
        Self {
            planner,
            timeline: Timeline::default(),
            fleet: SimulatedFleet::new(snapshot, task_ms),
            quiet_rounds: 0,
        }
    }

    /// Plans a round and carries it out. Returns false when nothing changes any more.
    fn step(&mut self) -> bool {
        if self.timeline.settled {
            return false;
        }
        let plan = self.planner.schedule(self.fleet.snapshot());
        let timeline = &mut self.timeline;
        timeline.rounds += 1;
        timeline.record_round(self.fleet.snapshot(), &plan);
        let changed = self.fleet.carry_out(&plan);
        self.quiet_rounds = if changed { 0 } else { self.quiet_rounds + 1 };
        timeline.settled = self.quiet_rounds > max_quiet_rounds(self.fleet.snapshot(), &plan);
        timeline.queued = queued_work(self.fleet.snapshot(), &plan);
        timeline.verdicts = plan.verdicts;
        timeline.shares = plan.shares;
        true
    }
}

/// Returns the number of quiet rounds after which the fleet may still change. Work that gave up
/// processes is protected for some rounds. After them, waiting work may get its space (W-32).
fn max_quiet_rounds(snapshot: &Snapshot, plan: &Plan) -> u64 {
    let may_start = |verdict: &Verdict| {
        matches!(
            verdict.reason,
            Reason::WaitingForPreemption | Reason::WaitingForDefragmentation
        )
    };
    let churn = snapshot.tunables.settings.churn_rounds.unwrap_or(0);
    if plan.verdicts.values().any(|verdict| may_start(verdict)) {
        churn
    } else {
        0
    }
}

fn queued_work(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<WorkId, QueuedWork> {
    let demand = snapshot.demand.iter();
    let queued = demand.filter(|(_, demand)| demand.queued.is_some());
    let queued = queued.filter_map(|(work, demand)| {
        let verdict = plan.verdicts.get(work)?;
        let item = QueuedWork {
            user: demand.user.clone(),
            queue: verdict.class.as_deref().unwrap_or_default().to_owned(),
            current: verdict.numbers.current_processes,
        };
        Some((work.clone(), item))
    });
    queued.collect()
}

impl Timeline {
    /// Returns the work at the end, with its user, its class or queue, and its number of processes.
    pub fn processes(&self) -> impl Iterator<Item = (&WorkId, (&UserName, &String, u64))> {
        let shared = self.shares.classes.iter().flat_map(|(class, share)| {
            share.users.iter().flat_map(move |(user, share)| {
                let work = share.work.iter();
                work.map(move |(work, share)| (work, (user, class, share.current)))
            })
        });
        let queued = self.queued.iter();
        shared.chain(queued.map(|(work, item)| (work, (&item.user, &item.queue, item.current))))
    }

    fn record_round(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let round = self.rounds;
        self.starts
            .extend(plan.grants.iter().map(|grant| ProcessStart {
                round,
                work: grant.work.clone(),
                user: grant.user.clone(),
                class: grant.class.to_string(),
                node: grant.node.clone(),
                quanta: grant.quanta,
            }));
        let receipts: BTreeMap<&AllocationId, &Receipt> = plan
            .receipts
            .iter()
            .map(|receipt| (&receipt.allocation, receipt))
            .collect();
        for vacate in &plan.vacates {
            let Some(allocation) = snapshot.allocations.get(&vacate.allocation) else {
                continue;
            };
            self.leaves.push(Departure {
                round,
                allocation: vacate.allocation.clone(),
                work: allocation.work.clone(),
                user: allocation.user.clone(),
                node: allocation.node.clone(),
                quanta: allocation.quanta,
                reason: vacate.reason,
                detail: vacate.detail.clone(),
                forecast: simulated_fleet::is_forecast(&vacate.allocation),
                receipt: receipts.get(&vacate.allocation).copied().cloned(),
            });
        }
    }

    /// Returns the work that waits or is refused at the end.
    pub fn waiting(&self) -> impl Iterator<Item = (&WorkId, &Verdict)> {
        let verdicts = self.verdicts.iter();
        verdicts
            .map(|(work, verdict)| (work, &**verdict))
            .filter(|(_, verdict)| verdict.waits || verdict.refused)
    }

    /// Returns the work that loses a process.
    pub fn losers(&self) -> BTreeSet<&WorkId> {
        self.leaves.iter().map(|leave| &leave.work).collect()
    }
}

#[cfg(test)]
mod tests;
