//! What would happen: the production planner, round after round, on a copy of the fleet.
//!
//! A forecast plans twice from one snapshot, once as it is and once with [`Changes`], so that what
//! would have happened anyway is not laid at their door. Between rounds the fleet does what it is
//! told and no more: what was granted runs by the next round, what was told to go is gone by then
//! a job that came to run has finished a first task, and a cycle has passed. No
//! task is counted off: a forecast says how the machines are shared, not when work is done.
//!
//! It ends when nothing changes any more, or after the rounds it was given. Like a plan it depends
//! on the snapshot alone.

mod advance;
mod changes;

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, UserName, WorkId};

use crate::{
    FairShare, Plan, Planner, Reason, Snapshot, Verdict, Verdicts,
    output::plan::{Receipt, Shares, VacateReason},
};

use advance::Advance;
pub use changes::Changes;

/// One process that starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// 1 is the next round.
    pub round: u64,
    pub work: WorkId,
    pub user: UserName,
    pub class: String,
    pub node: NodeName,
    pub order: u64,
}

/// One process that has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    pub round: u64,
    pub allocation: AllocationId,
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    pub order: u64,
    pub reason: VacateReason,
    pub detail: String,
    /// It was to start in this forecast, and is not there yet.
    pub forecast: bool,
    /// Who it goes for and what is lost, where it is taken back for others.
    pub receipt: Option<Receipt>,
}

/// The rounds from one snapshot until nothing changes any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Rounds that were planned.
    pub rounds: u64,
    /// Nothing would change any more. Otherwise the rounds were too few to tell how it ends.
    pub settled: bool,
    pub starts: Vec<Start>,
    pub leaves: Vec<Leave>,
    /// Of the last round.
    pub verdicts: Verdicts,
    /// Of the last round.
    pub shares: Shares,
    /// Of the last round: what work in queues has, which is in no share.
    pub queued: BTreeMap<WorkId, InQueue>,
}

/// Work in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InQueue {
    pub user: UserName,
    pub queue: String,
    /// Processes, without those told to go.
    pub current: u64,
}

/// Two courses from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// Processes each piece of work has at present, without those told to go.
    pub now: BTreeMap<WorkId, u64>,
    /// As it would go anyway.
    pub without: Timeline,
    /// As it would go with the changes.
    pub with: Timeline,
}

/// Processes of one piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub user: UserName,
    pub class: String,
    pub now: u64,
    /// In the end, as it would go anyway.
    pub without: u64,
    /// In the end, with the changes.
    pub with: u64,
}

/// What the changes would bring about in a fleet without queues, over at most so many rounds.
pub fn forecast(snapshot: &Snapshot, changes: &Changes, rounds: u64) -> Forecast {
    let mut changed = snapshot.clone();
    changes.apply(&mut changed);
    let task_ms = &changes.task_ms;
    compare(
        &FairShare,
        snapshot,
        (changed, task_ms),
        &mut within(rounds),
    )
}

/// Goes on for this many rounds at most; see [`compare`].
pub fn within(rounds: u64) -> impl FnMut(u64) -> bool {
    move |planned| planned < rounds
}

/// The same for a fleet that was changed by other means than [`Changes`]: another policy, say.
/// `task_ms` tells how long tasks of work will take that has not finished one. `go_on` is asked
/// before each round with how many have been planned, so that whoever has no more time can stop;
/// both courses then end in the same round.
pub fn compare(
    planner: &dyn Planner,
    snapshot: &Snapshot,
    (changed, task_ms): (Snapshot, &BTreeMap<WorkId, u64>),
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Forecast {
    let nobody = BTreeMap::new();
    let before = || Running::new(planner, snapshot.clone(), &nobody);
    let mut without = (*snapshot != changed).then(before);
    let mut with = Running::new(planner, changed, task_ms);
    let mut planned = 0;
    while go_on(planned) {
        let other = without.as_mut().is_none_or(|running| !running.step());
        if !with.step() && other {
            break;
        }
        planned += 1;
    }
    let with = with.course;
    let without = without.map_or_else(|| with.clone(), |running| running.course);
    let mut now: BTreeMap<WorkId, u64> = BTreeMap::new();
    for held in snapshot.allocations.values().filter(|held| !held.leaving) {
        *now.entry(held.work.clone()).or_default() += 1;
    }
    Forecast { now, without, with }
}

impl Forecast {
    /// Work that would have another number of processes in the end.
    pub fn moves(&self) -> BTreeMap<WorkId, Move> {
        let mut moves: BTreeMap<WorkId, Move> = BTreeMap::new();
        for (course, changed) in [(&self.without, false), (&self.with, true)] {
            for (work, (user, class, current)) in course.processes() {
                let entry = moves.entry(work.clone()).or_insert_with(|| Move {
                    user: user.clone(),
                    class: class.clone(),
                    now: self.now.get(work).copied().unwrap_or(0),
                    without: 0,
                    with: 0,
                });
                let count = if changed {
                    entry.class.clone_from(class);
                    &mut entry.with
                } else {
                    &mut entry.without
                };
                *count = current;
            }
        }
        moves.retain(|_, it| it.without != it.with);
        moves
    }
}

/// A course under way.
struct Running<'a> {
    planner: &'a dyn Planner,
    course: Timeline,
    passing: Advance<'a>,
    /// Rounds in a row that changed nothing.
    quiet: u64,
}

impl<'a> Running<'a> {
    fn new(
        planner: &'a dyn Planner,
        snapshot: Snapshot,
        task_ms: &'a BTreeMap<WorkId, u64>,
    ) -> Self {
        Self {
            planner,
            course: Timeline::default(),
            passing: Advance::of(snapshot, task_ms),
            quiet: 0,
        }
    }

    /// Plans a round and carries it out. False when nothing changes any more.
    fn step(&mut self) -> bool {
        if self.course.settled {
            return false;
        }
        let plan = self.planner.schedule(self.passing.snapshot());
        let course = &mut self.course;
        course.rounds += 1;
        course.tell(self.passing.snapshot(), &plan);
        let changed = self.passing.carry_out(&plan);
        self.quiet = if changed { 0 } else { self.quiet + 1 };
        course.settled = self.quiet > pause(self.passing.snapshot(), &plan);
        course.queued = queued(self.passing.snapshot(), &plan);
        course.verdicts = plan.verdicts;
        course.shares = plan.shares;
        true
    }
}

/// Quiet rounds after which something may still happen: work that waits for room to be made is
/// served again when who gave last may be asked again (W-32).
fn pause(snapshot: &Snapshot, plan: &Plan) -> u64 {
    let hopes = |verdict: &Verdict| {
        matches!(
            verdict.reason,
            Reason::WaitingForPreemption | Reason::WaitingForDefragmentation
        )
    };
    let churn = snapshot.tunables.settings.churn_rounds.unwrap_or(0);
    if plan.verdicts.values().any(|verdict| hopes(verdict)) {
        churn
    } else {
        0
    }
}

fn queued(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<WorkId, InQueue> {
    let demand = snapshot.demand.iter();
    let queued = demand.filter(|(_, demand)| demand.queued.is_some());
    let queued = queued.filter_map(|(work, demand)| {
        let verdict = plan.verdicts.get(work)?;
        let place = InQueue {
            user: demand.user.clone(),
            queue: verdict.class.as_deref().unwrap_or_default().to_owned(),
            current: verdict.numbers.current_processes,
        };
        Some((work.clone(), place))
    });
    queued.collect()
}

impl Timeline {
    /// Processes that each piece of work has in the end, with whose it is and where it is served.
    pub fn processes(&self) -> impl Iterator<Item = (&WorkId, (&UserName, &String, u64))> {
        let shared = self.shares.classes.iter().flat_map(|(class, share)| {
            share.users.iter().flat_map(move |(user, share)| {
                let work = share.work.iter();
                work.map(move |(work, share)| (work, (user, class, share.current)))
            })
        });
        let queued = self.queued.iter();
        shared.chain(queued.map(|(work, it)| (work, (&it.user, &it.queue, it.current))))
    }

    fn tell(&mut self, snapshot: &Snapshot, plan: &Plan) {
        let round = self.rounds;
        self.starts.extend(plan.grants.iter().map(|grant| Start {
            round,
            work: grant.work.clone(),
            user: grant.user.clone(),
            class: grant.class.to_string(),
            node: grant.node.clone(),
            order: grant.order,
        }));
        let receipts: BTreeMap<&AllocationId, &Receipt> = plan
            .receipts
            .iter()
            .map(|receipt| (&receipt.allocation, receipt))
            .collect();
        for vacate in &plan.vacates {
            let Some(held) = snapshot.allocations.get(&vacate.allocation) else {
                continue;
            };
            self.leaves.push(Leave {
                round,
                allocation: vacate.allocation.clone(),
                work: held.work.clone(),
                user: held.user.clone(),
                node: held.node.clone(),
                order: held.order,
                reason: vacate.reason,
                detail: vacate.detail.clone(),
                forecast: advance::is_forecast(&vacate.allocation),
                receipt: receipts.get(&vacate.allocation).copied().cloned(),
            });
        }
    }

    /// Work that has no process in the end, or less than it is due.
    pub fn waiting(&self) -> impl Iterator<Item = (&WorkId, &Verdict)> {
        let said = self.verdicts.iter();
        said.map(|(work, verdict)| (work, &**verdict))
            .filter(|(_, verdict)| verdict.waits || verdict.refused)
    }

    /// Work that has to give something up.
    pub fn losers(&self) -> BTreeSet<&WorkId> {
        self.leaves.iter().map(|leave| &leave.work).collect()
    }
}

#[cfg(test)]
mod tests;
