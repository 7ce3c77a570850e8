//! A node that could be cleared, with the allocations that would have to leave it.

use std::cell::OnceCell;

use hayward_vocabulary::Size;

use super::EvictionCost;
use crate::{
    ids::{AllocIx, NodeIx, WorkIx},
    index::node_space::NodeSpace,
    state::{RoundState, budget::PreemptionBudget, preemption_order::preemption_key},
};

/// An allocation that could be preempted, with its node. Sorted by node, then allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Evictable {
    pub node: NodeIx,
    pub allocation: AllocIx,
}

/// A node that processes are leaving or could leave.
pub(super) struct CandidateNode {
    pub node: NodeIx,
    /// Quanta that are free once everything that leaves has left.
    future_quanta: u64,
    /// Range of this node in the list of evictable allocations of all nodes.
    evictables: std::ops::Range<usize>,
    /// Sum of the quanta of all evictable allocations.
    most: u64,
    /// Quanta of the largest evictable allocation.
    largest: u64,
    /// Least work lost with any evictable allocation, in milliseconds.
    least_lost_ms: u64,
    /// Details, computed on first use. Most candidates are ruled out by their sums alone.
    details: OnceCell<Box<Details>>,
}

/// The space of a candidate and its evictable allocations.
pub(super) struct Details {
    /// Future space of the node.
    space: NodeSpace,
    /// Allocations whose owners exceeded their entitlement when the step began, cheapest first. The
    /// list is complete, because preemption makes no other work exceed its entitlement.
    takeable: Vec<Victim>,
}

/// An evictable allocation. The round does not change these values.
struct Victim {
    allocation: AllocIx,
    owner: WorkIx,
    quanta: u64,
    /// Milliseconds of work lost with the allocation. 0 unless `lose_least` is set.
    lost_ms: u64,
}

impl Details {
    fn new(state: &RoundState, node: NodeIx, evictables: &[Evictable]) -> Self {
        let victim = |allocation: AllocIx| {
            let record = &state.allocations[allocation];
            Some(Victim {
                allocation,
                owner: record.work?,
                quanta: record.quanta,
                lost_ms: lost_ms(state, allocation),
            })
        };
        let allocation = evictables.iter().map(|evictable| evictable.allocation);
        let stays = allocation.filter(|allocation| !state.leaving[*allocation]);
        let mut takeable = Vec::with_capacity(evictables.len());
        takeable.extend(stays.filter_map(victim));
        if takeable.len() > 1 {
            takeable.sort_by(|a: &Victim, b: &Victim| {
                preemption_key(state, a.allocation).cmp(&preemption_key(state, b.allocation))
            });
        }
        Self {
            space: state.future_free(node),
            takeable,
        }
    }
}

fn lost_ms(state: &RoundState, allocation: AllocIx) -> u64 {
    let counts = state.settings.lose_least;
    if counts {
        state.invested_ms(allocation)
    } else {
        0
    }
}

impl CandidateNode {
    /// Creates the candidate. `evictables` is its range in `all`, the list of all nodes.
    pub fn new(
        state: &RoundState,
        node: NodeIx,
        future_quanta: u64,
        all: &[Evictable],
        evictables: std::ops::Range<usize>,
    ) -> Self {
        let here = &all[evictables.clone()];
        let allocation = || here.iter().map(|evictable| evictable.allocation);
        let quanta = || allocation().map(|allocation| state.index.usage[allocation].quanta);
        let lost_ms = allocation().map(|allocation| lost_ms(state, allocation));
        Self {
            node,
            future_quanta,
            evictables,
            most: quanta().sum(),
            largest: quanta().max().unwrap_or(0),
            least_lost_ms: lost_ms.min().unwrap_or(0),
            details: OnceCell::new(),
        }
    }

    /// Returns the details. `all` is the list of evictable allocations of all nodes.
    pub fn details(&self, state: &RoundState, all: &[Evictable]) -> &Details {
        let details = || Details::new(state, self.node, &all[self.evictables.clone()]);
        self.details.get_or_init(|| Box::new(details()))
    }

    /// Updates the candidate after vacates and reservations on its node.
    pub fn renew(&mut self, state: &RoundState, all: &[Evictable]) {
        self.details(state, all);
        let Some(details) = self.details.get_mut() else {
            return;
        };
        details.space = state.future_free(self.node);
        details.takeable.retain(|it| !state.leaving[it.allocation]);
        self.future_quanta = details.space.quanta;
        let quanta = details.takeable.iter().map(|it| it.quanta);
        self.most = quanta.clone().sum();
        self.largest = quanta.max().unwrap_or(0);
        let lost_ms = details.takeable.iter().map(|it| it.lost_ms);
        self.least_lost_ms = lost_ms.min().unwrap_or(0);
    }

    /// Returns a lower bound of the cost of clearing space for one process, from quanta alone.
    /// Returns `None` if even all evictable allocations together are too small.
    pub fn at_least(&self, quanta: u64, position: usize) -> Option<EvictionCost> {
        let lacking = quanta.saturating_sub(self.future_quanta);
        if self.most < lacking {
            return None;
        }
        let count = lacking.div_ceil(self.largest.max(1));
        let lost_ms = count.saturating_mul(self.least_lost_ms);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some(EvictionCost {
            processes: count,
            lost_ms,
            position,
        })
    }

    /// Returns whether one process would fit if all evictable allocations left.
    pub fn could_hold(
        &self,
        state: &RoundState,
        all: &[Evictable],
        quanta: u64,
        size: &Size,
    ) -> bool {
        if self.future_quanta.saturating_add(self.most) < quanta {
            return false;
        }
        let details = self.details(state, all);
        let mut space = details.space.clone();
        for it in &details.takeable {
            let allocation = &state.allocations[it.allocation];
            space.give(allocation.quanta, &allocation.size, &allocation.gpus);
        }
        space.count_fitting(quanta, size) > 0
    }
}

/// A process that needs space on a candidate.
#[derive(Clone, Copy)]
pub(super) struct VictimsFor<'a> {
    pub candidate: &'a CandidateNode,
    /// Evictable allocations of all nodes.
    pub all: &'a [Evictable],
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
    preempted: Vec<(WorkIx, u64)>,
}

impl Victims {
    /// Chooses the allocations. Returns whether enough of them may leave within the budget.
    pub fn choose(
        &mut self,
        state: &RoundState,
        VictimsFor {
            candidate,
            all,
            process_quanta,
            size,
        }: VictimsFor,
        budget: &mut PreemptionBudget,
    ) -> bool {
        self.chosen.clear();
        self.preempted.clear();
        self.lost_ms = 0;
        if candidate.future_quanta.saturating_add(candidate.most) < process_quanta {
            return false;
        }
        let details = candidate.details(state, all);
        if details.space.count_fitting(process_quanta, size) > 0 {
            return true;
        }
        let mut quanta = candidate.future_quanta;
        let mut space = None;
        for it in &details.takeable {
            if !self.may_take(state, it, budget) {
                continue;
            }
            self.chosen.push(it.allocation);
            self.lost_ms = self.lost_ms.saturating_add(it.lost_ms);
            quanta += it.quanta;
            // The full vector is compared only when the quanta suffice.
            if quanta < process_quanta {
                continue;
            }
            let given = if space.is_none() {
                0
            } else {
                self.chosen.len() - 1
            };
            let space = space.get_or_insert_with(|| details.space.clone());
            for allocation in &self.chosen[given..] {
                let record = &state.allocations[*allocation];
                space.give(record.quanta, &record.size, &record.gpus);
            }
            if space.count_fitting(process_quanta, size) > 0 {
                return true;
            }
        }
        false
    }

    /// Returns whether the owner still exceeds its entitlement after the previous choices, and the
    /// budget allows this one.
    fn may_take(&mut self, state: &RoundState, it: &Victim, budget: &mut PreemptionBudget) -> bool {
        if state.leaving[it.allocation] {
            return false;
        }
        let known = self
            .preempted
            .iter()
            .position(|(owner, _)| *owner == it.owner);
        let known = known.unwrap_or_else(|| {
            self.preempted.push((it.owner, 0));
            self.preempted.len() - 1
        });
        let chosen = &mut self.preempted[known].1;
        let exceeds = *chosen < state.work[it.owner].excess();
        let may = exceeds && budget.allows(&state.allocations[it.allocation]);
        *chosen += u64::from(may);
        may
    }
}
