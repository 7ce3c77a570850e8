//! Reasons why free space is idle: no work wants it, the work that wants it does not fit, or a cap
//! limits that work.
//!
//! All unreserved free space of a node has the same reason. A *wish* is the demand of work for more
//! processes than it has. Work that no node can ever hold has no wish.

use std::collections::BTreeSet;

use crate::{
    ids::{NodeIx, PoolIx, ShapeIx, TypedVec, WorkIx},
    input::snapshot::Policy,
    output::plan::Reason,
    state::{NodeState, RoundState, serve_order::reserve_work},
};

/// The wishes of all work, in the form in which a node is compared with them.
#[derive(Default, PartialEq)]
pub(super) struct UnmetDemand {
    /// Wishes by the home pool of the work.
    homes: TypedVec<PoolIx, PoolWishes>,
    /// Work with a node list, which is compared with each node separately.
    listed: Vec<WorkIx>,
}

/// Quanta of one process with its shape, in ascending order.
type Shapes = Vec<(u64, ShapeIx)>;

/// Wishes of all work with one home pool.
#[derive(Default, Clone, PartialEq)]
struct PoolWishes {
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

/// Wishes of all work, counted by shape and retained from round to round. Work of RESERVE classes
/// is not included, because its quanta may be those of a reserved node.
#[derive(Default)]
pub(super) struct WishCounts {
    by_shape: TypedVec<ShapeIx, ShapeWishes>,
    listed: BTreeSet<WorkIx>,
    /// Shape and wish as they were counted, by work.
    counted: TypedVec<WorkIx, CountedWish>,
}

/// Numbers of pieces of work of one shape.
#[derive(Default, Clone, Copy, Debug, PartialEq)]
struct ShapeWishes {
    /// Work that wants more processes.
    more: u32,
    /// Work that wants more processes, but a cap limits it.
    capped: u32,
}

/// Shape and wish of one piece of work, as they were counted.
#[derive(Clone, Copy, PartialEq)]
struct CountedWish {
    shape: Option<ShapeIx>,
    kind: WishKind,
}

impl CountedWish {
    const NONE: Self = Self {
        shape: None,
        kind: WishKind::Nothing,
    };
}

impl WishCounts {
    /// Counts work again if its wish changed.
    pub fn recount(&mut self, state: &RoundState, all: impl Iterator<Item = WorkIx>) {
        self.by_shape
            .resize(state.index.shapes.len(), ShapeWishes::default());
        self.counted.resize(state.work.len(), CountedWish::NONE);
        all.for_each(|work| self.update_wish(state, work));
    }

    /// Asserts that the retained counts equal those of all work counted again.
    #[cfg(test)]
    pub fn assert_recounted(&self, state: &RoundState) {
        let mut recounted = Self::default();
        recounted
            .by_shape
            .resize(self.by_shape.len(), ShapeWishes::default());
        recounted
            .counted
            .resize(self.counted.len(), CountedWish::NONE);
        state
            .work
            .indices()
            .for_each(|work| recounted.update_wish(state, work));
        assert_eq!(self.by_shape, recounted.by_shape, "wishes by shape");
        assert_eq!(self.listed, recounted.listed, "work with a node list");
    }

    fn update_wish(&mut self, state: &RoundState, work: WorkIx) {
        let kind = match state.policy(work) {
            None | Some(Policy::Reserve) => WishKind::Nothing,
            Some(_) => wish_kind(state, work),
        };
        let shape = Some(state.work[work].shape);
        let now = CountedWish { shape, kind };
        let before = std::mem::replace(&mut self.counted[work], now);
        if before != now {
            self.count(work, before, |sum| *sum -= 1);
            self.count(work, now, |sum| *sum += 1);
            if kind == WishKind::Listed {
                self.listed.insert(work);
            }
        }
    }

    /// Applies `change` to the number that counts this wish.
    fn count(&mut self, work: WorkIx, wish: CountedWish, change: impl Fn(&mut u32)) {
        let Some(shape) = wish.shape.map(|shape| &mut self.by_shape[shape]) else {
            return;
        };
        match wish.kind {
            WishKind::Nothing => {}
            WishKind::More => change(&mut shape.more),
            WishKind::Capped => change(&mut shape.capped),
            WishKind::Listed => drop(self.listed.remove(&work)),
        }
    }
}

impl UnmetDemand {
    pub fn new(state: &RoundState, counts: &WishCounts) -> Self {
        let listed = counts.listed.iter().copied();
        let mut wishes = Self {
            homes: TypedVec::filled(PoolWishes::default(), state.forest.len()),
            listed: listed.collect(),
        };
        let shapes = state.index.shapes.enumerate().zip(counts.by_shape.iter());
        for ((index, shape), ShapeWishes { more, capped }) in shapes {
            let Some(home) = shape.home.filter(|_| more + capped > 0) else {
                continue;
            };
            let wish = &mut wishes.homes[home];
            if *more > 0 {
                let shapes = if shape.includes_subpools {
                    &mut wish.with_subpools
                } else {
                    &mut wish.home_only
                };
                shapes.push((shape.quanta, index));
            }
            wish.has_capped_with_subpools |= *capped > 0 && shape.includes_subpools;
            wish.has_capped_home_only |= *capped > 0 && !shape.includes_subpools;
        }
        for wish in wishes.homes.iter_mut() {
            wish.with_subpools.sort_unstable();
            wish.home_only.sort_unstable();
        }
        for work in reserve_work(state) {
            wishes.add_whole_node(state, work);
        }
        wishes
    }

    fn add_whole_node(&mut self, state: &RoundState, work: WorkIx) {
        let Some(home) = state.home(work) else { return };
        match wish_kind(state, work) {
            WishKind::Nothing => {}
            WishKind::Listed => self.listed.push(work),
            WishKind::More => {
                let quanta = state.work[work].process_quanta;
                let min = &mut self.homes[home].min_whole_node;
                *min = Some(min.map_or(quanta, |min| min.min(quanta)));
            }
            WishKind::Capped => self.homes[home].has_capped_home_only = true,
        }
    }

    /// Returns whether each unchanged node keeps its reason: the wishes are the same, and no work
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
            .filter(|it| state.is_permitted(**it, node));
        let listed = listed.map(|it| fits(state, node_state, *it));
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
    node_state.reservations.iter().map(|it| it.quanta).sum()
}

impl PoolWishes {
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
    /// A process fits, but a rule forbids it.
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
    let mut candidates = shapes.iter().take_while(|it| it.0 <= node.free.quanta);
    Some(candidates.any(|(quanta, shape)| {
        let size = &state.index.shapes[*shape].size;
        node.free.count_fitting(*quanta, size) > 0
    }))
}

/// Kind of wish that a piece of work has beyond its present processes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WishKind {
    Nothing,
    More,
    /// More processes, but a cap or an allotment forbids them.
    Capped,
    /// More processes, on nodes of its node list.
    Listed,
}

fn wish_kind(state: &RoundState, work: WorkIx) -> WishKind {
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
        return WishKind::Nothing;
    }
    if reason == Some(Reason::AllotmentExceeded) {
        return WishKind::Capped;
    }
    // This cap does not consider space, so work that already fills all its reachable space still
    // wants more.
    if work_state.process_count() < work_state.cap.before_space {
        return if work_state.has_node_list {
            WishKind::Listed
        } else {
            WishKind::More
        };
    }
    if work_state.process_count() < work_state.cap.base {
        return WishKind::Capped;
    }
    WishKind::Nothing
}
