//! The fair-share planner. A round consists of numbered steps.
//!
//! Steps 1 to 3 prepare the whole fleet. Steps 4 to 8 plan one tree of pools after the other. Step
//! 9 reports. Each step has a folder of its name, and its main file begins with its input, output
//! and rules.

mod state_for_next_round;

use hayward_vocabulary::WorkId;

use crate::{
    Planner, defragmentation, departures,
    entitlement::{self, EntitlementCache, UserEntitlementCache, attainable_processes, deficit},
    ids::PoolIx,
    index::FleetIndex,
    input::{
        delta::SnapshotDelta,
        snapshot::{Carried, Snapshot},
    },
    lending,
    output::plan::{ChangedVerdicts, Grant, Plan, ShareDelta, Shares, Verdict, Verdicts},
    placement, preemption,
    report::LastReport,
    state::{
        Needy, RoundCache, RoundState,
        serve_order::{self, to_serve_in_order},
    },
};

use state_for_next_round::build_carried_state;

/// Planner that divides the fleet by weights among classes, users and work, with fixed shares and
/// whole nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct FairShare;

impl Planner for FairShare {
    fn schedule(&self, snapshot: &Snapshot) -> Plan {
        let mut rounds = Rounds::default();
        let decided = rounds.decide(snapshot, &SnapshotDelta::everything());
        rounds.full_plan(decided)
    }
}

/// Plans the rounds of one fleet, one after the other.
///
/// Each round updates the index and the cache of the previous round by a delta. The plan depends on
/// the snapshot alone, so a planner without previous rounds decides the same.
#[derive(Default)]
pub struct Rounds {
    index: FleetIndex,
    cache: RoundCache,
    entitlement_cache: EntitlementCache,
    last_report: LastReport,
    /// True if a round reports neither verdicts nor shares.
    skips_reports: bool,
}

/// Result of a round, with verdicts and shares that differ from the round before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The plan, without verdicts and shares.
    pub plan: Plan,
    pub verdicts: ChangedVerdicts,
    /// Changed shares. `None` after a rebuild, for example after a change of policy. Then
    /// `verdicts` is empty, and all of [`Rounds::verdicts`] and [`Rounds::shares`] may differ.
    pub shares: Option<ShareDelta>,
    /// Work that was withdrawn since the last round. It has no verdict any more.
    pub gone: Vec<WorkId>,
}

/// Phases of a round, for measurements. The steps are those of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Step 1: the index absorbs the delta.
    Absorb,
    /// Steps 2 and 3.
    Prepare,
    /// Step 4: entitlements are computed.
    Count,
    Place,
    Preempt,
    Defragment,
    Lend,
    Report,
}

impl Rounds {
    /// Returns a planner that makes the same decisions, but reports neither verdicts nor shares.
    pub fn without_explanations() -> Self {
        Self {
            skips_reports: true,
            ..Self::default()
        }
    }

    /// Plans one round. `delta` lists everything that differs from the previous snapshot.
    pub fn decide(&mut self, snapshot: &Snapshot, delta: &SnapshotDelta) -> Decision {
        self.decide_with_phases(snapshot, delta, &mut |_| {})
    }

    /// Plans one round and calls `on_phase_end` at the end of each phase.
    pub fn decide_with_phases(
        &mut self,
        snapshot: &Snapshot,
        delta: &SnapshotDelta,
        on_phase_end: &mut dyn FnMut(Phase),
    ) -> Decision {
        // 1. The index follows the snapshot.
        self.index.apply(snapshot, delta);
        on_phase_end(Phase::Absorb);
        let (index, entitlement_cache) = (&self.index, &mut self.entitlement_cache);
        let mut state = RoundState::open(&mut self.cache, index, snapshot);
        entitlement_cache.update(index);
        deficit::settle(&mut state);
        // 2. Faulty allocations are vacated, whatever their work is entitled to.
        departures::vacate_faulty(&mut state);
        // 3. Each piece of work gets its reach: the number of processes it could hold at most.
        attainable_processes::measure(&mut state, &mut entitlement_cache.reach_index);
        state.refresh_derived();
        on_phase_end(Phase::Prepare);
        // Steps 4 to 8, tree by tree.
        for tree in state.forest.roots().iter().copied() {
            plan_tree(&mut state, &mut entitlement_cache.users, tree, on_phase_end);
        }
        deficit::record_rates(&mut state, &entitlement_cache.users);
        entitlement_cache.clear_users_after_rebuild(index);
        state.update_future_holes();
        // 9. Verdicts and shares are reported, and state is passed on to the next round.
        let last_report = (!self.skips_reports).then_some(&mut self.last_report);
        let conclusion = conclude(last_report, &mut state);
        state.close(&mut self.cache, conclusion.needy);
        let mut vacates = std::mem::take(&mut state.vacates);
        vacates.sort_unstable_by(|one, other| one.allocation.cmp(&other.allocation));
        let plan = Plan {
            round: snapshot.round,
            at: snapshot.now,
            grants: conclusion.grants,
            carried: conclusion.carried,
            receipts: state.receipts,
            vacates,
            ..Plan::default()
        };
        on_phase_end(Phase::Report);
        Decision {
            plan,
            verdicts: conclusion.verdicts,
            shares: conclusion.shares,
            gone: self.index.withdrawn.clone(),
        }
    }

    /// Returns the verdicts of the last round, one for each piece of work in the demand.
    pub fn verdicts(&self) -> Verdicts {
        self.last_report.verdicts(&self.index)
    }

    pub fn verdict(&self, work: &WorkId) -> Option<Box<Verdict>> {
        self.last_report.verdict(&self.index, work)
    }

    /// Returns the shares of the last round, down to each piece of work.
    pub fn shares(&self) -> Shares {
        self.last_report.shares(&self.index)
    }

    /// Returns the shares of the last round, down to users.
    pub fn sums(&self) -> &Shares {
        &self.last_report.sums
    }

    #[cfg(test)]
    pub(crate) fn tree_outcomes(
        &self,
    ) -> &crate::ids::TypedVec<PoolIx, crate::state::idle_trees::TreeOutcome> {
        self.cache.outcomes()
    }

    /// Returns the whole plan of the last round.
    pub fn full_plan(&self, decided: Decision) -> Plan {
        Plan {
            verdicts: self.verdicts(),
            shares: self.shares(),
            ..decided.plan
        }
    }
}

/// Plans one tree of pools. Trees are independent of each other, except for allotments.
fn plan_tree(
    state: &mut RoundState,
    user_entitlements: &mut UserEntitlementCache,
    tree: PoolIx,
    on_phase_end: &mut dyn FnMut(Phase),
) {
    // 4. Each piece of work gets its entitlement.
    entitlement::compute(state, user_entitlements, tree);
    state.renew_reservations(tree);
    on_phase_end(Phase::Count);
    serve_order::refresh_queues(state, tree);
    if state.begin_tree(tree) {
        // An idle tree keeps the result of the last round.
        return;
    }
    // 5. Missing processes get nodes.
    let queue = placement::place(state, tree);
    on_phase_end(Phase::Place);
    // 6. Allocations are preempted for work that still waits.
    preemption::preempt(state, tree, &queue);
    on_phase_end(Phase::Preempt);
    // 7. Processes are taken from donors, because the free space is fragmented over nodes.
    let receipts_before = state.receipts.len();
    defragmentation::take_from_donors(state, tree, &queue);
    if state.settings.evict_for_somebody && state.receipts.len() > receipts_before {
        // In the same round, donors may preempt work that exceeds its entitlement.
        preemption::preempt(state, tree, &to_serve_in_order(state, tree));
    }
    defragmentation::swap(state, tree);
    on_phase_end(Phase::Defragment);
    // 8. Idle space beyond all entitlements is lent.
    lending::lend_idle(state, tree);
    state.end_tree(tree);
    on_phase_end(Phase::Lend);
}

/// Results of step 9.
struct Conclusion {
    verdicts: ChangedVerdicts,
    shares: Option<ShareDelta>,
    grants: Vec<Grant>,
    carried: Carried,
    needy: Needy,
}

/// Reports the changes, if reports are wanted. Collects the grants and the state for the next
/// round.
fn conclude(last_report: Option<&mut LastReport>, state: &mut RoundState) -> Conclusion {
    let deficits = std::mem::take(&mut state.deficits);
    let state = &*state;
    let (verdicts, shares) = match last_report {
        Some(last_report) => last_report.report(state),
        None => (Vec::new(), None),
    };
    let (carried, needy) = build_carried_state(state, deficits);
    let grants = state.grants();
    Conclusion {
        verdicts,
        shares,
        grants,
        carried,
        needy,
    }
}
