//! Plans each top-level pool with its own planner, in one plan. [`Capacity`] plans pools with
//! queues, and the response of an external planner plans its pool. [`FairShare`] plans all others.
//!
//! `FairShare` gets a part of the snapshot, without the work of other planners and the nodes of
//! their pools. A node may have allocations of several planners, for example after its pool got
//! queues. Such a node is closed to new work of fair shares. The allocations on such a node stay,
//! and their space is never counted twice.
//!
//! The response of an external planner is checked last, against everything else that is planned.
//!
//! A fleet without queues and external planners is planned from the snapshot itself, without a
//! copy.

mod fair_share_snapshot;
mod planner_assignment;

use hayward_rm_scheduler_domain::{
    Decision, FairShare, Phase, Plan, Planner, Rounds as FairRounds, Snapshot, SnapshotDelta,
    Verdict, Verdicts, plan::Shares,
};
use hayward_rm_scheduler_external_planner as external_planner;
use hayward_vocabulary::WorkId;

use crate::Capacity;
use fair_share_snapshot::FairShareSnapshot;
use planner_assignment::PlannerAssignment;

/// The production planner, without a cache between rounds.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompositePlanner;

impl Planner for CompositePlanner {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        if !FairShareSnapshot::is_needed(snapshot) {
            return FairShare.schedule(snapshot);
        }
        let fair_share_snapshot = FairShareSnapshot::new(snapshot);
        let mut plan = FairShare.schedule(fair_share_snapshot.snapshot());
        let verdicts = plan.verdicts.values_mut();
        PlannerAssignment::new(snapshot).explain_all(verdicts.map(|it| &mut **it));
        merge(&mut plan, Capacity.schedule(snapshot));
        external_planner::plan(snapshot, &mut plan);
        plan
    }
}

/// Consecutive rounds of one fleet, with a cache of the last round.
#[derive(Default)]
pub struct Rounds {
    fair_share_planner: FairRounds,
    /// `None` while fair shares are planned from the whole snapshot.
    fair_share_snapshot: Option<FairShareSnapshot>,
    /// Verdicts of the last round for queued or externally planned work.
    other_verdicts: Verdicts,
    /// True if queued work waits for something that only time brings, such as the end of a delay.
    waits_for_time: bool,
    assignment: PlannerAssignment,
}

impl Rounds {
    /// Creates rounds that produce no verdicts for work outside queues.
    pub fn without_explanations() -> Self {
        Self {
            fair_share_planner: FairRounds::without_explanations(),
            ..Self::default()
        }
    }

    /// Plans one round. `delta` contains all differences from the last snapshot.
    pub fn decide(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> Decision {
        self.decide_watched(snapshot, delta, &mut |_| {})
    }

    /// Plans one round, and calls `on_phase_end` at the end of each phase.
    pub fn decide_watched(
        &mut self,
        snapshot: &Snapshot,
        delta: &SnapshotDelta,
        on_phase_end: &mut dyn FnMut(Phase),
    ) -> Decision {
        let is_new = self.fair_share_snapshot.is_none();
        if delta.everything || (is_new && FairShareSnapshot::adds_queued_work(delta)) {
            self.fair_share_snapshot =
                FairShareSnapshot::is_needed(snapshot).then(|| FairShareSnapshot::new(snapshot));
        }
        self.assignment = PlannerAssignment::new(snapshot);
        let Some(fair_share_snapshot) = &mut self.fair_share_snapshot else {
            self.other_verdicts.clear();
            self.waits_for_time = false;
            return self
                .fair_share_planner
                .decide_with_phases(snapshot, delta, on_phase_end);
        };
        let fair_delta = if is_new || delta.everything {
            SnapshotDelta::everything()
        } else {
            fair_share_snapshot.update(snapshot, delta)
        };
        let mut decided = self.fair_share_planner.decide_with_phases(
            fair_share_snapshot.snapshot(),
            &fair_delta,
            on_phase_end,
        );
        let changed = decided.verdicts.iter_mut();
        self.assignment
            .explain_all(changed.map(|(_, verdict)| verdict));
        let plan = Capacity.schedule(snapshot);
        let mut queued = plan.verdicts.values();
        self.waits_for_time = queued.any(|verdict| verdict.waits && !verdict.refused);
        merge(&mut decided.plan, plan);
        external_planner::plan(snapshot, &mut decided.plan);
        on_phase_end(Phase::Place);
        let verdicts = std::mem::take(&mut decided.plan.verdicts);
        let without_verdict = self
            .other_verdicts
            .keys()
            .filter(|work| !verdicts.contains_key(*work));
        let withdrawn = without_verdict.filter(|work| !snapshot.demand.contains_key(*work));
        decided.gone.extend(withdrawn.cloned());
        if decided.shares.is_some() {
            let changed = verdicts
                .iter()
                .filter(|(work, verdict)| self.other_verdicts.get(*work) != Some(*verdict));
            let changed = changed.map(|(work, verdict)| (work.clone(), Verdict::clone(verdict)));
            decided.verdicts.extend(changed);
        }
        self.other_verdicts = verdicts;
        decided
    }

    /// Returns the verdicts of all work in the last round.
    pub fn verdicts(&self) -> Verdicts {
        let mut verdicts = self.fair_share_planner.verdicts();
        let fair_verdicts = verdicts.values_mut();
        self.assignment
            .explain_all(fair_verdicts.map(|it| &mut **it));
        verdicts.extend(self.other_verdicts.clone());
        verdicts
    }

    /// Returns the verdict of a piece of work in the last round.
    pub fn verdict(&self, work: &WorkId) -> Option<Box<Verdict>> {
        let other_verdict = self.other_verdicts.get(work).cloned();
        let fair_verdict = || {
            let mut verdict = self.fair_share_planner.verdict(work)?;
            self.assignment.explain(&mut verdict);
            Some(verdict)
        };
        other_verdict.or_else(fair_verdict)
    }

    /// Returns the shares of the fair-share planner, without queues.
    pub fn shares(&self) -> Shares {
        self.fair_share_planner.shares()
    }

    /// Returns the shares down to the level of users, without those of single work items.
    pub fn sums(&self) -> &Shares {
        self.fair_share_planner.sums()
    }

    /// Returns the complete plan of the last round.
    pub fn full_plan(&self, decided: Decision) -> Plan {
        Plan {
            verdicts: self.verdicts(),
            shares: self.shares(),
            ..decided.plan
        }
    }

    /// Returns true if queued work waits for something that only time brings, such as the end of a
    /// delay or reservation.
    pub fn waits_for_time(&self) -> bool {
        self.waits_for_time
    }
}

/// Merges the plan of the queues into the plan of the fair shares. The two plans have no node and
/// no work in common.
fn merge(plan: &mut Plan, queue_plan: Plan) {
    plan.grants.extend(queue_plan.grants);
    plan.vacates.extend(queue_plan.vacates);
    plan.vacates.sort_by(|a, b| a.allocation.cmp(&b.allocation));
    plan.receipts.extend(queue_plan.receipts);
    plan.verdicts.extend(queue_plan.verdicts);
    plan.carried.queues = queue_plan.carried.queues;
}

#[cfg(test)]
mod tests;
