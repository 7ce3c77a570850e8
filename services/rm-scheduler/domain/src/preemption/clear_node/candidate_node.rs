//! A node that could be cleared for waiting work, with the allocations that would leave.

use std::cell::OnceCell;

use hayward_vocabulary::Size;

use super::ClearingCost;
use crate::{
    ids::{AllocIx, NodeIx, WorkIx},
    index::node_space::NodeSpace,
    state::{RoundState, budget::PreemptionBudget, preemption_order::preemption_key},
};

/// An allocation that could be preempted, with its node. Sorted by node, then allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Preemptable {
    pub node: NodeIx,
    pub allocation: AllocIx,
}

/// A node that processes are leaving or could leave.
pub(super) struct CandidateNode {
    pub node: NodeIx,
    /// Quanta that are free once everything that leaves has left.
    future_quanta: u64,
    /// Range of this node in the list of preemptable allocations of all nodes.
    preemptable: std::ops::Range<usize>,
    /// Sum of the quanta of all preemptable allocations.
    preemptable_quanta: u64,
    /// Quanta of the largest preemptable allocation.
    largest_quanta: u64,
    /// Least work lost with any preemptable allocation, in milliseconds.
    least_lost_ms: u64,
    /// Details, computed on first use. Most candidates are ruled out by their sums alone.
    details: OnceCell<Box<Details>>,
}

/// The space of a candidate and its preemptable allocations.
pub(super) struct Details {
    /// Future space of the node.
    space: NodeSpace,
    /// Allocations whose owners exceeded their entitlement when the step began, cheapest first. The
    /// list is complete, because preemption makes no other work exceed its entitlement.
    victims: Vec<Victim>,
}

/// A preemptable allocation. The round does not change these values.
struct Victim {
    allocation: AllocIx,
    owner: WorkIx,
    quanta: u64,
    /// Milliseconds of work lost with the allocation. 0 unless `lose_least` is set.
    lost_ms: u64,
}

impl Details {
    fn new(state: &RoundState, node: NodeIx, preemptable: &[Preemptable]) -> Self {
        let victim = |allocation: AllocIx| {
            let record = &state.allocations[allocation];
            Some(Victim {
                allocation,
                owner: record.work?,
                quanta: record.quanta,
                lost_ms: lost_ms(state, allocation),
            })
        };
        let allocations = preemptable.iter().map(|item| item.allocation);
        let staying = allocations.filter(|allocation| !state.leaving[*allocation]);
        let mut victims = Vec::with_capacity(preemptable.len());
        victims.extend(staying.filter_map(victim));
        if victims.len() > 1 {
            victims.sort_by(|a: &Victim, b: &Victim| {
                preemption_key(state, a.allocation).cmp(&preemption_key(state, b.allocation))
            });
        }
        Self {
            space: state.future_free(node),
            victims,
        }
    }
}

/// Returns the work lost with an allocation, or 0 if the setting `lose_least` is off.
fn lost_ms(state: &RoundState, allocation: AllocIx) -> u64 {
    if state.settings.lose_least {
        state.invested_ms(allocation)
    } else {
        0
    }
}

impl CandidateNode {
    /// Creates the candidate. `preemptable` is its range in `all`, the list of all nodes.
    pub fn new(
        state: &RoundState,
        node: NodeIx,
        future_quanta: u64,
        all: &[Preemptable],
        preemptable: std::ops::Range<usize>,
    ) -> Self {
        let node_allocations = &all[preemptable.clone()];
        let allocations = || node_allocations.iter().map(|item| item.allocation);
        let quanta = || allocations().map(|allocation| state.allocations[allocation].quanta);
        let lost_ms = allocations().map(|allocation| lost_ms(state, allocation));
        Self {
            node,
            future_quanta,
            preemptable,
            preemptable_quanta: quanta().sum(),
            largest_quanta: quanta().max().unwrap_or(0),
            least_lost_ms: lost_ms.min().unwrap_or(0),
            details: OnceCell::new(),
        }
    }

    /// Returns the details. `all` is the list of preemptable allocations of all nodes.
    pub fn details(&self, state: &RoundState, all: &[Preemptable]) -> &Details {
        let details = || Details::new(state, self.node, &all[self.preemptable.clone()]);
        self.details.get_or_init(|| Box::new(details()))
    }

    /// Updates the candidate after vacates and reservations on its node.
    pub fn update(&mut self, state: &RoundState, all: &[Preemptable]) {
        self.details(state, all);
        let Some(details) = self.details.get_mut() else {
            return;
        };
        details.space = state.future_free(self.node);
        details
            .victims
            .retain(|victim| !state.leaving[victim.allocation]);
        self.future_quanta = details.space.quanta;
        let quanta = details.victims.iter().map(|victim| victim.quanta);
        self.preemptable_quanta = quanta.clone().sum();
        self.largest_quanta = quanta.max().unwrap_or(0);
        let lost_ms = details.victims.iter().map(|victim| victim.lost_ms);
        self.least_lost_ms = lost_ms.min().unwrap_or(0);
    }

    /// Returns a lower bound of the cost of clearing space for one process, from quanta alone.
    /// Returns `None` if even all preemptable allocations together are too small.
    pub fn min_cost(&self, quanta: u64, position: usize) -> Option<ClearingCost> {
        let missing_quanta = quanta.saturating_sub(self.future_quanta);
        if self.preemptable_quanta < missing_quanta {
            return None;
        }
        let count = missing_quanta.div_ceil(self.largest_quanta.max(1));
        let lost_ms = count.saturating_mul(self.least_lost_ms);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some(ClearingCost {
            processes: count,
            lost_ms,
            position,
        })
    }

    /// Returns true if one process would fit after all preemptable allocations left.
    pub fn could_hold(
        &self,
        state: &RoundState,
        all: &[Preemptable],
        quanta: u64,
        size: &Size,
    ) -> bool {
        if self.future_quanta.saturating_add(self.preemptable_quanta) < quanta {
            return false;
        }
        let details = self.details(state, all);
        let mut space = details.space.clone();
        for victim in &details.victims {
            let allocation = &state.allocations[victim.allocation];
            space.give(allocation.quanta, &allocation.size, &allocation.gpus);
        }
        space.count_fitting(quanta, size) > 0
    }
}

/// A candidate, and the process for which space on it is sought.
#[derive(Clone, Copy)]
pub(super) struct VictimSearch<'a> {
    pub candidate: &'a CandidateNode,
    /// Preemptable allocations of all nodes.
    pub all: &'a [Preemptable],
    pub process_quanta: u64,
    pub size: &'a Size,
}

/// Allocations that must leave a node so that one process fits. The value is reused for many nodes.
#[derive(Default)]
pub(super) struct Victims {
    pub chosen: Vec<AllocIx>,
    /// Milliseconds of work lost with the chosen allocations.
    pub lost_ms: u64,
    /// Number of chosen allocations by owner.
    chosen_by_owner: Vec<(WorkIx, u64)>,
}

impl Victims {
    /// Chooses the allocations. Returns true if enough of them may leave within the budget.
    pub fn choose(
        &mut self,
        state: &RoundState,
        VictimSearch {
            candidate,
            all,
            process_quanta,
            size,
        }: VictimSearch,
        budget: &mut PreemptionBudget,
    ) -> bool {
        self.chosen.clear();
        self.chosen_by_owner.clear();
        self.lost_ms = 0;
        if candidate
            .future_quanta
            .saturating_add(candidate.preemptable_quanta)
            < process_quanta
        {
            return false;
        }
        let details = candidate.details(state, all);
        if details.space.count_fitting(process_quanta, size) > 0 {
            return true;
        }
        let mut quanta = candidate.future_quanta;
        let mut space = None;
        for victim in &details.victims {
            if !self.may_choose(state, victim, budget) {
                continue;
            }
            self.chosen.push(victim.allocation);
            self.lost_ms = self.lost_ms.saturating_add(victim.lost_ms);
            quanta += victim.quanta;
            // The other resources are compared only when the quanta suffice.
            if quanta < process_quanta {
                continue;
            }
            let counted_in_space = if space.is_none() {
                0
            } else {
                self.chosen.len() - 1
            };
            let space = space.get_or_insert_with(|| details.space.clone());
            for allocation in &self.chosen[counted_in_space..] {
                let record = &state.allocations[*allocation];
                space.give(record.quanta, &record.size, &record.gpus);
            }
            if space.count_fitting(process_quanta, size) > 0 {
                return true;
            }
        }
        false
    }

    /// Returns true if the owner still exceeds its entitlement after the previous choices, and the
    /// budget allows this choice. If so, counts the choice.
    fn may_choose(
        &mut self,
        state: &RoundState,
        victim: &Victim,
        budget: &mut PreemptionBudget,
    ) -> bool {
        if state.leaving[victim.allocation] {
            return false;
        }
        let position = self
            .chosen_by_owner
            .iter()
            .position(|(owner, _)| *owner == victim.owner);
        let position = position.unwrap_or_else(|| {
            self.chosen_by_owner.push((victim.owner, 0));
            self.chosen_by_owner.len() - 1
        });
        let (_, chosen_count) = &mut self.chosen_by_owner[position];
        let exceeds = *chosen_count < state.work[victim.owner].excess();
        let is_allowed = exceeds && budget.allows(&state.allocations[victim.allocation]);
        *chosen_count += u64::from(is_allowed);
        is_allowed
    }
}
