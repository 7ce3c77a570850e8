//! Each top-level pool by its own planner, in one plan (D7): pools that have queues by
//! [`Capacity`], pools with a planner outside by what that answered, all others by [`FairShare`].
//!
//! `FairShare` plans from the *rest* of the snapshot: without work that is another planner's, and
//! without the nodes of their pools. Where two meet, because a pool was given queues while work of
//! classes ran there, or a node came from one side to the other, the node is closed to fair shares:
//! what stands there stays, and nobody counts its room twice. What a planner outside says is looked
//! at last, beside all that the others have planned.
//!
//! A fleet of fair shares alone has no rest. It is planned from the snapshot itself, and pays
//! nothing.

mod fair_share_part;

use hayward_rm_scheduler_domain::{
    Decided, FairShare, News, Phase, Plan, Planner, Rounds as FairRounds, Snapshot, Verdict,
    Verdicts, plan::Shares,
};
use hayward_rm_scheduler_external_planner as outside;
use hayward_vocabulary::WorkId;

use crate::Capacity;
use fair_share_part::{Divided, Rest};

/// The production planner, without any memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByPool;

impl Planner for ByPool {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        if !Rest::is_needed(snapshot) {
            return FairShare.schedule(snapshot);
        }
        let rest = Rest::of(snapshot);
        let mut plan = FairShare.schedule(rest.snapshot());
        let verdicts = plan.verdicts.values_mut();
        Divided::of(snapshot).explain_all(verdicts.map(|it| &mut **it));
        merge(&mut plan, Capacity.schedule(snapshot));
        outside::plan(snapshot, &mut plan);
        plan
    }
}

/// Rounds of one fleet, one after the other, with the memory that makes them cheap.
#[derive(Default)]
pub struct Rounds {
    fair: FairRounds,
    rest: Option<Rest>,
    /// What was said in the last round of work that is queued, or planned outside.
    elsewhere: Verdicts,
    /// Some of it is queued, and lacks something that time alone may bring.
    waits_for_time: bool,
    divided: Divided,
}

impl Rounds {
    /// For who only carries plans out: of work that is in no queue nothing is said.
    pub fn silent() -> Self {
        Self {
            fair: FairRounds::silent(),
            ..Self::default()
        }
    }

    /// `news` names all that differs between this snapshot and the one before.
    pub fn decide(&mut self, snapshot: &Snapshot, news: &News) -> Decided {
        self.decide_watched(snapshot, news, &mut |_| {})
    }

    /// The same, saying when each part ends.
    pub fn decide_watched(
        &mut self,
        snapshot: &Snapshot,
        news: &News,
        ended: &mut dyn FnMut(Phase),
    ) -> Decided {
        let began = self.rest.is_none();
        if news.everything || (began && Rest::begins(news)) {
            self.rest = Rest::is_needed(snapshot).then(|| Rest::of(snapshot));
        }
        self.divided = Divided::of(snapshot);
        let Some(rest) = &mut self.rest else {
            self.elsewhere.clear();
            self.waits_for_time = false;
            return self.fair.decide_watched(snapshot, news, ended);
        };
        let news = if began || news.everything {
            News::everything()
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
        let said = std::mem::take(&mut decided.plan.verdicts);
        let gone = self
            .elsewhere
            .keys()
            .filter(|work| !said.contains_key(*work));
        let withdrawn = gone.filter(|work| !snapshot.demand.contains_key(*work));
        decided.gone.extend(withdrawn.cloned());
        if decided.shares.is_some() {
            let news = said
                .iter()
                .filter(|(work, now)| self.elsewhere.get(*work) != Some(*now));
            let news = news.map(|(work, now)| (work.clone(), Verdict::clone(now)));
            decided.verdicts.extend(news);
        }
        self.elsewhere = said;
        decided
    }

    /// One for every piece of work in the demand of the last round.
    pub fn verdicts(&self) -> Verdicts {
        let mut verdicts = self.fair.verdicts();
        let all = verdicts.values_mut();
        self.divided.explain_all(all.map(|it| &mut **it));
        verdicts.extend(self.elsewhere.clone());
        verdicts
    }

    pub fn verdict(&self, work: &WorkId) -> Option<Box<Verdict>> {
        let said = self.elsewhere.get(work).cloned();
        let fair = || {
            let mut verdict = self.fair.verdict(work)?;
            self.divided.explain(&mut verdict);
            Some(verdict)
        };
        said.or_else(fair)
    }

    /// The arithmetic of fair shares; queues are not in it.
    pub fn shares(&self) -> Shares {
        self.fair.shares()
    }

    /// The same down to users, without their work.
    pub fn sums(&self) -> &Shares {
        self.fair.sums()
    }

    /// The whole plan of the last round.
    pub fn whole(&self, decided: Decided) -> Plan {
        Plan {
            verdicts: self.verdicts(),
            shares: self.shares(),
            ..decided.plan
        }
    }

    /// Queued work lacks something that time alone may bring: a delay ends, a reservation lapses.
    pub fn waits_for_time(&self) -> bool {
        self.waits_for_time
    }
}

/// Both plans as one: they have no node and no work in common.
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
