//! One node that could be cleared, and who would have to leave it.

use std::cell::OnceCell;

use hayward_vocabulary::Size;

use super::EvictionCost;
use crate::{
    index::node_space::NodeSpace,
    preemption::{budget::PreemptionBudget, cheapest},
    state::RoundState,
};

/// A share that could be taken, of a node.
#[derive(Clone, Copy)]
pub(super) struct Evictable {
    allocation: u32,
    node: u32,
}

impl Evictable {
    pub fn of(node: usize, allocation: usize) -> Option<Self> {
        Some(Self {
            node: u32::try_from(node).ok()?,
            allocation: u32::try_from(allocation).ok()?,
        })
    }

    /// Both in a number that is quick to compare.
    pub fn key(self) -> u64 {
        u64::from(self.node) << u32::BITS | u64::from(self.allocation)
    }

    pub fn node(self) -> usize {
        self.node as usize
    }

    fn allocation(self) -> usize {
        self.allocation as usize
    }
}

/// A node where something leaves or could leave.
pub(super) struct CandidateNode {
    pub node: usize,
    /// Quanta that will be free there.
    future_quanta: u64,
    /// What could be taken there, among that of all nodes.
    evictables: std::ops::Range<usize>,
    /// Quanta of all of them.
    most: u64,
    /// Quanta of the largest.
    largest: u64,
    /// What is lost at least with any.
    least_lost_ms: u64,
    /// Most nodes are never looked at that closely.
    within: OnceCell<Box<Within>>,
}

/// What there is on a node.
pub(super) struct Within {
    /// What will be free there.
    room: NodeSpace,
    /// Shares whose owners had more than their counts in the beginning, the cheapest first. Nobody
    /// comes to exceed its count by what is done here, so no others are ever taken.
    takeable: Vec<Taking>,
}

/// What a round does not change about a share that could be taken.
struct Taking {
    allocation: usize,
    owner: usize,
    quanta: u64,
    /// Milliseconds of work; nothing where that does not count.
    lost_ms: u64,
}

impl Within {
    fn of(state: &RoundState, node: usize, evictables: &[Evictable]) -> Self {
        let taking = |allocation: usize| {
            let record = &state.allocations[allocation];
            Some(Taking {
                allocation,
                owner: record.work?,
                quanta: record.quanta,
                lost_ms: lost_ms(state, allocation),
            })
        };
        let allocation = evictables.iter().map(|evictable| evictable.allocation());
        let stays = allocation.filter(|allocation| !state.leaving[*allocation]);
        let mut takeable = Vec::with_capacity(evictables.len());
        takeable.extend(stays.filter_map(taking));
        if takeable.len() > 1 {
            takeable.sort_by(|a: &Taking, b: &Taking| {
                cheapest(state, a.allocation).cmp(&cheapest(state, b.allocation))
            });
        }
        Self {
            room: state.future_free(node),
            takeable,
        }
    }
}

fn lost_ms(state: &RoundState, allocation: usize) -> u64 {
    let counts = state.settings.lose_least;
    if counts {
        state.invested_ms(allocation)
    } else {
        0
    }
}

impl CandidateNode {
    /// These can be taken, the first of them at that place among those of all nodes.
    pub fn of(
        state: &RoundState,
        (node, coming): (usize, u64),
        (first, evictables): (usize, &[Evictable]),
    ) -> Self {
        let allocation = || evictables.iter().map(|evictable| evictable.allocation());
        let orders = || allocation().map(|allocation| state.index.usage[allocation].quanta);
        let lost_ms = allocation().map(|allocation| lost_ms(state, allocation));
        Self {
            node,
            future_quanta: coming,
            evictables: first..first + evictables.len(),
            most: orders().sum(),
            largest: orders().max().unwrap_or(0),
            least_lost_ms: lost_ms.min().unwrap_or(0),
            within: OnceCell::new(),
        }
    }

    /// `all` is what could be taken on any node.
    pub fn details(&self, state: &RoundState, all: &[Evictable]) -> &Within {
        let within = || Within::of(state, self.node, &all[self.evictables.clone()]);
        self.within.get_or_init(|| Box::new(within()))
    }

    /// Brings it to what was told to leave and is meant for somebody by now.
    pub fn renew(&mut self, state: &RoundState, all: &[Evictable]) {
        self.details(state, all);
        let Some(within) = self.within.get_mut() else {
            return;
        };
        within.room = state.future_free(self.node);
        within.takeable.retain(|it| !state.leaving[it.allocation]);
        self.future_quanta = within.room.quanta;
        let orders = within.takeable.iter().map(|it| it.quanta);
        self.most = orders.clone().sum();
        self.largest = orders.max().unwrap_or(0);
        let lost_ms = within.takeable.iter().map(|it| it.lost_ms);
        self.least_lost_ms = lost_ms.min().unwrap_or(0);
    }

    /// How many would have to leave for one process of this order, and what would be lost with
    /// them, at least; none where all that could be taken is too little. Quanta alone say it, so it
    /// costs next to nothing.
    pub fn at_least(&self, quanta: u64, position: usize) -> Option<EvictionCost> {
        let lacking = quanta.saturating_sub(self.future_quanta);
        if self.most < lacking {
            return None;
        }
        let count = lacking.div_ceil(self.largest.max(1));
        let lost_ms = count.saturating_mul(self.least_lost_ms);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some((count, lost_ms, position))
    }

    /// Would one process fit if all left that could be taken, whatever their owners keep?
    pub fn could_hold(
        &self,
        state: &RoundState,
        all: &[Evictable],
        (quanta, size): (u64, &Size),
    ) -> bool {
        if self.future_quanta.saturating_add(self.most) < quanta {
            return false;
        }
        let within = self.details(state, all);
        let mut space = within.room.clone();
        for it in &within.takeable {
            let allocation = &state.allocations[it.allocation];
            space.give(allocation.quanta, &allocation.size, &allocation.gpus);
        }
        space.fitting(quanta, size) > 0
    }
}

/// The shares that have to leave a node so that one process fits; memory for many nodes.
#[derive(Default)]
pub(super) struct Victims {
    pub chosen: Vec<usize>,
    /// Work lost with them.
    pub lost_ms: u64,
    /// By owner: how many are taken.
    spent: Vec<(usize, u64)>,
}

impl Victims {
    /// False when it never will, or not within the budget (B5).
    pub fn choose(
        &mut self,
        state: &RoundState,
        (place, all): (&CandidateNode, &[Evictable]),
        (order, size): (u64, &Size),
        budget: &mut PreemptionBudget,
    ) -> bool {
        self.chosen.clear();
        self.spent.clear();
        self.lost_ms = 0;
        if place.future_quanta.saturating_add(place.most) < order {
            return false;
        }
        let within = place.details(state, all);
        if within.room.fitting(order, size) > 0 {
            return true;
        }
        let mut quanta = place.future_quanta;
        let mut space = None;
        for it in &within.takeable {
            if !self.may_take(state, it, budget) {
                continue;
            }
            self.chosen.push(it.allocation);
            self.lost_ms = self.lost_ms.saturating_add(it.lost_ms);
            quanta += it.quanta;
            // As long as there are not even the quanta, nothing else has to be looked at.
            if quanta < order {
                continue;
            }
            let given = if space.is_none() {
                0
            } else {
                self.chosen.len() - 1
            };
            let space = space.get_or_insert_with(|| within.room.clone());
            for allocation in &self.chosen[given..] {
                let record = &state.allocations[*allocation];
                space.give(record.quanta, &record.size, &record.gpus);
            }
            if space.fitting(order, size) > 0 {
                return true;
            }
        }
        false
    }

    /// Its owner has more than its count, also without what is taken already, and there is budget.
    fn may_take(&mut self, state: &RoundState, it: &Taking, budget: &mut PreemptionBudget) -> bool {
        if state.leaving[it.allocation] {
            return false;
        }
        let known = self.spent.iter().position(|(owner, _)| *owner == it.owner);
        let known = known.unwrap_or_else(|| {
            self.spent.push((it.owner, 0));
            self.spent.len() - 1
        });
        let taken = &mut self.spent[known].1;
        let exceeds = *taken < state.work[it.owner].excess();
        let may = exceeds && budget.allows(&state.allocations[it.allocation]);
        *taken += u64::from(may);
        may
    }
}
