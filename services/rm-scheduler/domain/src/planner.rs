//! The round of the fair-share planner, as a table of contents.

mod carry_over;

use hayward_vocabulary::WorkId;

use crate::{
    Planner, defragmentation, departures,
    entitlement::{self, deficit, fair_share::UserCounts, reachable},
    incremental::join::join,
    index::FleetIndex,
    input::{delta::SnapshotDelta, snapshot::Snapshot},
    lending,
    output::plan::{ChangedVerdicts, Plan, ShareDelta, Shares, Verdict, Verdicts},
    placement::{
        self,
        serve_order::{self, lacking_in_order},
    },
    preemption,
    report::LastReport,
    state::{RoundCache, RoundState},
};

use carry_over::carried;

/// Weighted shares by class, user and job; fixed shares and reservations beside them.
#[derive(Debug, Clone, Copy, Default)]
pub struct FairShare;

impl Planner for FairShare {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        let mut rounds = Rounds::default();
        let decided = rounds.decide(snapshot, &SnapshotDelta::everything());
        rounds.full_plan(decided)
    }
}

/// Rounds of one fleet, one after the other: what is known of it and what was said of it is kept,
/// and brought up to date by news. What is decided depends on the snapshot alone, and is the same
/// as without any memory.
#[derive(Default)]
pub struct Rounds {
    index: FleetIndex,
    cache: RoundCache,
    last_report: LastReport,
    silent: bool,
}

/// What a round decided, and what it says otherwise than the round before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Without verdicts and shares.
    pub plan: Plan,
    pub verdicts: ChangedVerdicts,
    /// Absent when everything was read anew, as after a change of policy: then no verdict is named,
    /// and all of [`Rounds::verdicts`] and [`Rounds::shares`] may differ.
    pub shares: Option<ShareDelta>,
    /// Work that is withdrawn, and has no verdict any more.
    pub gone: Vec<WorkId>,
}

/// The parts of a round, for whoever measures them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Absorb,
    Open,
    Count,
    Place,
    Evict,
    Mend,
    Lend,
    Tell,
}

impl Rounds {
    /// For who only carries plans out: decides the same, and says of nothing why. There are no
    /// verdicts and no shares.
    pub fn without_explanations() -> Self {
        Self {
            silent: true,
            ..Self::default()
        }
    }

    /// `news` names all that differs between this snapshot and the one before.
    pub fn decide(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> Decided {
        self.decide_watched(snapshot, delta, &mut |_| {})
    }

    /// The same, saying when each part ends.
    pub fn decide_watched(
        &mut self,
        snapshot: &Snapshot,
        delta: &SnapshotDelta,
        ended: &mut dyn FnMut(Phase),
    ) -> Decided {
        // 1. Who asks, what is held where, which class serves whom, what is owed to whom.
        self.index.apply(snapshot, delta);
        ended(Phase::Absorb);
        let mut state = RoundState::open(&mut self.cache, &self.index, snapshot);
        deficit::settle(&mut state);
        // 2. What has to leave whatever anybody is due.
        departures::faults(&mut state);
        // 3. What each piece of work could hold, and how much of it it may use now.
        reachable::measure(&mut state);
        state.refresh_derived();
        ended(Phase::Open);
        for tree in state.forest.roots().iter().copied() {
            plan_tree(&mut state, tree, ended);
        }
        deficit::record(&mut state);
        if state.index.rebuilt {
            // Nowhere is more held in memory than here. What was counted first is counted anew as
            // soon as it is carried out, so its rows are missed the least.
            state.derived.user_counts = UserCounts::default();
        }
        state.update_future_holes();
        // 9. Why each has what it has, and what the next round has to know.
        let older = state.previously_needy.older_names.take();
        let deficits = std::mem::take(&mut state.deficits);
        let (carry, grant) = (|| carried(&state, older, deficits), || state.grants());
        let (verdicts, shares, (carried, grants)) = if self.silent {
            let read = join(state.granted.len(), carry, grant);
            (Vec::new(), None, read)
        } else {
            self.last_report.report(&state, || (carry(), grant()))
        };
        let (carried, needy) = carried;
        state.close(&mut self.cache, needy);
        let mut vacates = std::mem::take(&mut state.vacates);
        vacates.sort_unstable_by(|one, other| one.allocation.cmp(&other.allocation));
        let plan = Plan {
            round: snapshot.round,
            at: snapshot.now,
            grants,
            carried,
            receipts: state.receipts,
            vacates,
            ..Plan::default()
        };
        ended(Phase::Tell);
        let gone = self.index.withdrawn.clone();
        Decided {
            plan,
            verdicts,
            shares,
            gone,
        }
    }

    /// One for every piece of work in the demand of the last round, made to be read: what was kept
    /// of them is numbers.
    pub fn verdicts(&self) -> Verdicts {
        self.last_report.verdicts(&self.index)
    }

    pub fn verdict(&self, work: &WorkId) -> Option<Box<Verdict>> {
        self.last_report.verdict(&self.index, work)
    }

    /// The arithmetic of the last round, down to each piece of work.
    pub fn shares(&self) -> Shares {
        self.last_report.shares(&self.index)
    }

    /// The same down to users, without their work.
    pub fn sums(&self) -> &Shares {
        &self.last_report.sums
    }

    #[cfg(test)]
    pub(crate) fn outcomes(&self) -> &[crate::incremental::idle_trees::TreeOutcome] {
        self.cache.outcomes()
    }

    /// The whole plan of the last round.
    pub fn full_plan(&self, decided: Decided) -> Plan {
        Plan {
            verdicts: self.verdicts(),
            shares: self.shares(),
            ..decided.plan
        }
    }
}

/// Trees share nothing, so each is planned by itself.
fn plan_tree(state: &mut RoundState, tree: usize, ended: &mut dyn FnMut(Phase)) {
    // 4. How many processes each is due.
    entitlement::count(state, tree);
    state.renew_claims(tree);
    ended(Phase::Count);
    serve_order::renew(state, tree);
    if state.begin_tree(tree) {
        return;
    }
    // 5. On which nodes.
    let turns = placement::place(state, tree);
    ended(Phase::Place);
    // 6. Who has to make room.
    preemption::evict(state, tree, &turns);
    ended(Phase::Evict);
    // 7. Room that is there but split.
    let taken = state.receipts.len();
    defragmentation::defragment(state, tree, &turns);
    if state.settings.evict_for_somebody && state.receipts.len() > taken {
        // Who gave for that gets its own back in the same round, where others have more than their
        // counts.
        preemption::evict(state, tree, &lacking_in_order(state, tree));
    }
    defragmentation::swap(state, tree);
    ended(Phase::Mend);
    // 8. What nobody is due is lent.
    if state.settings.lend_idle {
        lending::lend_idle(state, tree);
    }
    state.end_tree(tree);
    ended(Phase::Lend);
}
