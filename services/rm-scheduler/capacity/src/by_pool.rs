//! Plans each top-level pool with its own planner, in one plan. [`Capacity`] plans pools with
//! queues, and the response of an external planner plans its pool. [`FairShare`] plans all others.
//!
//! `FairShare` gets a part of the snapshot, without the work of other planners and the nodes of
//! their pools. A node may have allocations of both sides, for example after its pool was given
//! queues. Such a node is closed to fair shares. These allocations stay, and their space is never
//! counted twice.
//! The response of an external planner is checked last, against everything else that is planned.
//!
//! A fleet without queues and external planners is planned from the snapshot itself, without a
//! copy.

mod fair_share_part;

use hayward_rm_scheduler_domain::{
    Decided, FairShare, Phase, Plan, Planner, Rounds as FairRounds, Snapshot, SnapshotDelta,
    Verdict, Verdicts, plan::Shares,
};
use hayward_rm_scheduler_external_planner as outside;
use hayward_vocabulary::WorkId;

use crate::Capacity;
use fair_share_part::{Divided, FairSharePart};

/// The production planner, without memory between rounds.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByPool;

impl Planner for ByPool {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        if !FairSharePart::is_needed(snapshot) {
            return FairShare.schedule(snapshot);
        }
        let rest = FairSharePart::new(snapshot);
        let mut plan = FairShare.schedule(rest.snapshot());
        let verdicts = plan.verdicts.values_mut();
        Divided::new(snapshot).explain_all(verdicts.map(|it| &mut **it));
        merge(&mut plan, Capacity.schedule(snapshot));
        outside::plan(snapshot, &mut plan);
        plan
    }
}

/// Consecutive rounds of one fleet, with memory that makes them fast.
#[derive(Default)]
pub struct Rounds {
    fair: FairRounds,
    rest: Option<FairSharePart>,
    /// Verdicts of the last round for queued or externally planned work.
    other_verdicts: Verdicts,
    /// True if queued work waits for something that only time brings.
    waits_for_time: bool,
    divided: Divided,
}

impl Rounds {
    /// Rounds that produce no verdicts for work outside queues.
    pub fn without_explanations() -> Self {
        Self {
            fair: FairRounds::without_explanations(),
            ..Self::default()
        }
    }

    /// Plans one round. `news` contains all differences from the last snapshot.
    pub fn decide(&mut self, snapshot: &Snapshot, news: &SnapshotDelta) -> Decided {
        self.decide_watched(snapshot, news, &mut |_| {})
    }

    /// Plans one round, and reports the end of each phase.
    pub fn decide_watched(
        &mut self,
        snapshot: &Snapshot,
        news: &SnapshotDelta,
        ended: &mut dyn FnMut(Phase),
    ) -> Decided {
        let began = self.rest.is_none();
        if news.everything || (began && FairSharePart::begins(news)) {
            self.rest = FairSharePart::is_needed(snapshot).then(|| FairSharePart::new(snapshot));
        }
        self.divided = Divided::new(snapshot);
        let Some(rest) = &mut self.rest else {
            self.other_verdicts.clear();
            self.waits_for_time = false;
            return self.fair.decide_watched(snapshot, news, ended);
        };
        let news = if began || news.everything {
            SnapshotDelta::everything()
        } else {
            rest.absorb(snapshot, news)
        };
        let mut decided = self.fair.decide_watched(rest.snapshot(), &news, ended);
        let news = decided.verdicts.iter_mut();
        self.divided.explain_all(news.map(|(_, verdict)| verdict));
        let plan = Capacity.schedule(snapshot);
        let mut queued = plan.verdicts.values();
        self.waits_for_time = queued.any(|verdict| verdict.waits && !verdict.refused);
        merge(&mut decided.plan, plan);
        outside::plan(snapshot, &mut decided.plan);
        ended(Phase::Place);
        let verdicts = std::mem::take(&mut decided.plan.verdicts);
        let gone = self
            .other_verdicts
            .keys()
            .filter(|work| !verdicts.contains_key(*work));
        let withdrawn = gone.filter(|work| !snapshot.demand.contains_key(*work));
        decided.gone.extend(withdrawn.cloned());
        if decided.shares.is_some() {
            let news = verdicts
                .iter()
                .filter(|(work, now)| self.other_verdicts.get(*work) != Some(*now));
            let news = news.map(|(work, now)| (work.clone(), Verdict::clone(now)));
            decided.verdicts.extend(news);
        }
        self.other_verdicts = verdicts;
        decided
    }

    /// Returns the verdicts of all work in the last round.
    pub fn verdicts(&self) -> Verdicts {
        let mut verdicts = self.fair.verdicts();
        let all = verdicts.values_mut();
        self.divided.explain_all(all.map(|it| &mut **it));
        verdicts.extend(self.other_verdicts.clone());
        verdicts
    }

    pub fn verdict(&self, work: &WorkId) -> Option<Box<Verdict>> {
        let verdicts = self.other_verdicts.get(work).cloned();
        let fair = || {
            let mut verdict = self.fair.verdict(work)?;
            self.divided.explain(&mut verdict);
            Some(verdict)
        };
        verdicts.or_else(fair)
    }

    /// Returns the shares of the fair-share planner, without queues.
    pub fn shares(&self) -> Shares {
        self.fair.shares()
    }

    /// Returns the shares down to the level of users, without those of single work items.
    pub fn sums(&self) -> &Shares {
        self.fair.sums()
    }

    /// Returns the complete plan of the last round.
    pub fn whole(&self, decided: Decided) -> Plan {
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

/// Merges a plan into another one. They have no nodes or work in common.
fn merge(plan: &mut Plan, queues: Plan) {
    plan.grants.extend(queues.grants);
    plan.vacates.extend(queues.vacates);
    plan.vacates.sort_by(|a, b| a.allocation.cmp(&b.allocation));
    plan.receipts.extend(queues.receipts);
    plan.verdicts.extend(queues.verdicts);
    plan.carried.queues = queues.carried.queues;
}

#[cfg(test)]
mod tests;
