//! Reasons why free space is idle: no work wants it, the work that wants it does not fit, or a cap
//! limits that work.
//!
//! All unreserved free space of a node has the same reason. Work has unmet demand if it wants more
//! processes than it has. Work that no node can ever hold has no unmet demand.

use std::collections::BTreeSet;

use crate::{
    ids::{NodeIx, PoolIx, ShapeIx, TypedVec, WorkIx},
    input::snapshot::Policy,
    output::plan::Reason,
    state::{NodeState, RoundState, serve_order::reserve_work},
};

/// The unmet demand of all work, in the form in which a node is compared with it.
#[derive(Default, PartialEq)]
pub(super) struct UnmetDemand {
    /// Demand by the home pool of the work.
    homes: TypedVec<PoolIx, PoolDemand>,
    /// Work with a node list, which is compared with each node separately.
    listed: Vec<WorkIx>,
}

/// Quanta of one process with its shape, in ascending order.
type Shapes = Vec<(u64, ShapeIx)>;

/// Unmet demand of all work with one home pool.
#[derive(Default, Clone, PartialEq)]
struct PoolDemand {
    /// Shapes of work that may also use the pools below.
    with_subpools: Shapes,
    /// Shapes of work that may use only this pool.
    home_only: Shapes,
    /// Fewest quanta of a wanted whole node. `None` if no whole node is wanted.
    min_whole_node: Option<u64>,
    /// True if a cap limits some work that may also use the pools below.
    has_capped_with_subpools: bool,
    /// True if a cap limits some work that may use only this pool.
    has_capped_home_only: bool,
}

/// Pieces of work with unmet demand, counted by shape and retained from round to round. Work of
/// RESERVE classes is not included, because its quanta may be those of a reserved node.
#[derive(Default)]
pub(super) struct UnmetDemandCounts {
    by_shape: TypedVec<ShapeIx, ShapeDemand>,
    listed: BTreeSet<WorkIx>,
    /// Shape and demand as they were counted, by work.
    counted: TypedVec<WorkIx, CountedDemand>,
}

/// Numbers of pieces of work of one shape.
#[derive(Default, Clone, Copy, Debug, PartialEq)]
struct ShapeDemand {
    /// Work that wants more processes.
    more: u32,
    /// Work that wants more processes, but a cap limits it.
    capped: u32,
}

/// Shape and kind of demand of one piece of work, as they were counted.
#[derive(Clone, Copy, PartialEq)]
struct CountedDemand {
    shape: Option<ShapeIx>,
    kind: DemandKind,
}

impl CountedDemand {
    const NONE: Self = Self {
        shape: None,
        kind: DemandKind::Met,
    };
}

impl UnmetDemandCounts {
    /// Counts work again if its demand changed.
    pub fn recount(&mut self, state: &RoundState, all: impl Iterator<Item = WorkIx>) {
        self.by_shape
            .resize(state.index.shapes.len(), ShapeDemand::default());
        self.counted.resize(state.work.len(), CountedDemand::NONE);
        all.for_each(|work| self.update(state, work));
    }

    /// Asserts that the retained counts equal those of all work counted again.
    #[cfg(test)]
    pub fn assert_recounted(&self, state: &RoundState) {
        let mut recounted = Self::default();
        recounted
            .by_shape
            .resize(self.by_shape.len(), ShapeDemand::default());
        recounted
            .counted
            .resize(self.counted.len(), CountedDemand::NONE);
        state
            .work
            .indices()
            .for_each(|work| recounted.update(state, work));
        assert_eq!(self.by_shape, recounted.by_shape, "demand by shape");
        assert_eq!(self.listed, recounted.listed, "work with a node list");
    }

    fn update(&mut self, state: &RoundState, work: WorkIx) {
        let kind = match state.policy(work) {
            None | Some(Policy::Reserve) => DemandKind::Met,
            Some(_) => demand_kind(state, work),
        };
        let shape = Some(state.work[work].shape);
        let new = CountedDemand { shape, kind };
        let old = std::mem::replace(&mut self.counted[work], new);
        if old != new {
            self.count(work, old, |sum| *sum -= 1);
            self.count(work, new, |sum| *sum += 1);
            if kind == DemandKind::UnmetOnListedNodes {
                self.listed.insert(work);
            }
        }
    }

    /// Applies `change` to the number that counts this demand.
    fn count(&mut self, work: WorkIx, demand: CountedDemand, change: impl Fn(&mut u32)) {
        let Some(shape) = demand.shape.map(|shape| &mut self.by_shape[shape]) else {
            return;
        };
        match demand.kind {
            DemandKind::Met => {}
            DemandKind::Unmet => change(&mut shape.more),
            DemandKind::Capped => change(&mut shape.capped),
            DemandKind::UnmetOnListedNodes => drop(self.listed.remove(&work)),
        }
    }
}

impl UnmetDemand {
    pub fn new(state: &RoundState, counts: &UnmetDemandCounts) -> Self {
        let listed = counts.listed.iter().copied();
        let mut unmet_demand = Self {
            homes: TypedVec::filled(PoolDemand::default(), state.forest.len()),
            listed: listed.collect(),
        };
        let shapes = state.index.shapes.enumerate().zip(counts.by_shape.iter());
        for ((index, shape), ShapeDemand { more, capped }) in shapes {
            let Some(home) = shape.home.filter(|_| more + capped > 0) else {
                continue;
            };
            let pool_demand = &mut unmet_demand.homes[home];
            if *more > 0 {
                let shapes = if shape.includes_subpools {
                    &mut pool_demand.with_subpools
                } else {
                    &mut pool_demand.home_only
                };
                shapes.push((shape.quanta, index));
            }
            pool_demand.has_capped_with_subpools |= *capped > 0 && shape.includes_subpools;
            pool_demand.has_capped_home_only |= *capped > 0 && !shape.includes_subpools;
        }
        for pool_demand in unmet_demand.homes.iter_mut() {
            pool_demand.with_subpools.sort_unstable();
            pool_demand.home_only.sort_unstable();
        }
        for work in reserve_work(state) {
            unmet_demand.add_whole_node(state, work);
        }
        unmet_demand
    }

    fn add_whole_node(&mut self, state: &RoundState, work: WorkIx) {
        let Some(home) = state.home(work) else { return };
        match demand_kind(state, work) {
            DemandKind::Met => {}
            DemandKind::UnmetOnListedNodes => self.listed.push(work),
            DemandKind::Unmet => {
                let quanta = state.work[work].process_quanta;
                let min = &mut self.homes[home].min_whole_node;
                *min = Some(min.map_or(quanta, |min| min.min(quanta)));
            }
            DemandKind::Capped => self.homes[home].has_capped_home_only = true,
        }
    }

    /// Returns whether each unchanged node keeps its reason: the demand is the same, and no work
    /// has a node list.
    pub fn gives_same_reasons(&self, before: &Self) -> bool {
        self == before && self.listed.is_empty()
    }

    /// Returns the reason why the unreserved free space of a node is idle.
    pub fn idle_reason(&self, state: &RoundState, node: NodeIx) -> IdleReason {
        let node_state = &state.nodes[node];
        let Some(pool) = node_state.pool else {
            return IdleReason::NoDemand;
        };
        let listed = self
            .listed
            .iter()
            .filter(|work| state.is_permitted(**work, node));
        let listed = listed.map(|work| fits(state, node_state, *work));
        let mut reason = listed
            .map(reason_for_demand)
            .max()
            .unwrap_or(IdleReason::NoDemand);
        for home in state.forest.path_to_root(pool) {
            reason = reason.max(self.homes[home].idle_reason(state, node_state, home == pool));
        }
        reason
    }
}

/// Returns the reserved quanta of a node. Only nodes that this round wrote have reservations.
pub(super) fn reserved_quanta(state: &RoundState, node: NodeIx) -> u64 {
    let node_state = &state.nodes[node];
    if !state.nodes.is_touched(node) {
        return 0;
    }
    if node_state.whole_node_for.is_some() {
        return node_state.quanta;
    }
    let reservations = node_state.reservations.iter();
    reservations.map(|reservation| reservation.quanta).sum()
}

impl PoolDemand {
    fn idle_reason(&self, state: &RoundState, node: &NodeState, is_home: bool) -> IdleReason {
        let is_capped = self.has_capped_with_subpools || (self.has_capped_home_only && is_home);
        let mut reason = if is_capped {
            IdleReason::Capped
        } else {
            IdleReason::NoDemand
        };
        if let Some(fits) = any_fits(state, node, &self.with_subpools) {
            reason = reason.max(reason_for_demand(fits));
        }
        if let Some(fits) = any_fits(state, node, &self.home_only).filter(|_| is_home) {
            reason = reason.max(reason_for_demand(fits));
        }
        if let Some(min) = self.min_whole_node.filter(|_| is_home) {
            let is_empty = node.free.quanta == node.quanta;
            reason = reason.max(reason_for_demand(is_empty && node.quanta >= min));
        }
        reason
    }
}

/// Reason why space is idle. If several reasons apply, the greatest is reported.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum IdleReason {
    /// No work wants the space.
    #[default]
    NoDemand,
    /// A cap limits the work that could use the space.
    Capped,
    /// The free space of the node is too small for a process.
    Split,
    /// A process fits, but a rule of the planner forbids it.
    Forbidden,
}

/// Returns the reason for idle space that work wants. `fits` tells whether a process fits there.
fn reason_for_demand(fits: bool) -> IdleReason {
    if fits {
        IdleReason::Forbidden
    } else {
        IdleReason::Split
    }
}

fn fits(state: &RoundState, node: &NodeState, work: WorkIx) -> bool {
    node.free
        .count_fitting(state.work[work].process_quanta, state.size(work))
        > 0
}

/// Returns whether a process of one of these shapes fits on the node, or `None` without shapes.
fn any_fits(state: &RoundState, node: &NodeState, shapes: &[(u64, ShapeIx)]) -> Option<bool> {
    shapes.first()?;
    let mut candidates = shapes
        .iter()
        .take_while(|(quanta, _)| *quanta <= node.free.quanta);
    Some(candidates.any(|(quanta, shape)| {
        let size = &state.index.shapes[*shape].size;
        node.free.count_fitting(*quanta, size) > 0
    }))
}

/// Demand of a piece of work beyond its present processes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DemandKind {
    /// The work wants no more processes, or no node can ever hold them.
    Met,
    /// The work wants more processes.
    Unmet,
    /// The work wants more processes, but a cap or an allotment forbids them.
    Capped,
    /// The work wants more processes, and only on nodes of its node list.
    UnmetOnListedNodes,
}

/// Returns the kind of the demand that the work has now.
fn demand_kind(state: &RoundState, work: WorkIx) -> DemandKind {
    let work_state = &state.work[work];
    let is_permanent = |reason| {
        matches!(
            reason,
            Reason::NoHostLargeEnough
                | Reason::NoHostOfSize
                | Reason::NoListedMachine
                | Reason::AllBlocked
        )
    };
    let reason = work_state.deferral.as_ref().map(|deferral| deferral.reason);
    let unreachable = state.policy(work) == Some(Policy::FairShare) && work_state.reach == 0;
    if work_state.ended || unreachable || reason.is_some_and(is_permanent) {
        return DemandKind::Met;
    }
    if reason == Some(Reason::AllotmentExceeded) {
        return DemandKind::Capped;
    }
    // This cap does not consider space, so work that already fills all its reachable space still
    // wants more.
    if work_state.process_count() < work_state.cap.before_space {
        return if work_state.has_node_list {
            DemandKind::UnmetOnListedNodes
        } else {
            DemandKind::Unmet
        };
    }
    if work_state.process_count() < work_state.cap.base {
        return DemandKind::Capped;
    }
    DemandKind::Met
}
