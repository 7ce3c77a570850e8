//! Reasons why free space is idle: no work wants it, the work that wants it does not fit, or a cap
//! limits that work.
//!
//! A node has one reason for all its free space that is not reserved. Work that no node can ever
//! hold does not count as a wish.

use std::collections::BTreeSet;

use crate::{
    ids::{NodeIx, PoolIx, ShapeIx, TypedVec, WorkIx},
    input::snapshot::Policy,
    output::plan::Reason,
    state::{NodeState, RoundState, serve_order::reserve_work},
};

/// Processes that are wanted and not held.
#[derive(Default, PartialEq)]
pub(super) struct UnmetDemand {
    /// Wishes by home pool.
    homes: TypedVec<PoolIx, Wish>,
    /// Work with a node list, which is compared with each node separately.
    listed: Vec<WorkIx>,
}

/// Quanta of one process with its shape, in ascending order.
type Shapes = Vec<(u64, ShapeIx)>;

#[derive(Default, Clone, PartialEq)]
struct Wish {
    /// Shapes of work that may also use the pools below.
    fair: Shapes,
    /// Shapes of work that may use only this pool.
    fixed: Shapes,
    /// Fewest quanta of a wanted whole node. `None` if no whole node is wanted.
    whole: Option<u64>,
    /// True if a cap limits some work. The first value is for work that may also use the pools
    /// below, the second for other work.
    capped: (bool, bool),
}

/// Wishes of all work, counted by shape and retained from round to round. Work of RESERVE classes
/// is not included, because its quanta may be those of a reserved node.
#[derive(Default)]
pub(super) struct Wishers {
    /// Number of pieces of work that want more, and number of those that a cap limits, by shape.
    by_shape: TypedVec<ShapeIx, (u32, u32)>,
    listed: BTreeSet<WorkIx>,
    /// Shape and wish as they were counted, by work.
    parts: TypedVec<WorkIx, CountedWish>,
}

/// Shape and wish of one piece of work, as they were counted.
#[derive(Clone, Copy, PartialEq)]
struct CountedWish {
    shape: Option<ShapeIx>,
    asks: Asks,
}

impl CountedWish {
    const NONE: Self = Self {
        shape: None,
        asks: Asks::Nothing,
    };
}

impl Wishers {
    /// Counts work again if its wish changed.
    pub fn renew(&mut self, state: &RoundState, all: impl Iterator<Item = WorkIx>) {
        self.by_shape.resize(state.index.shapes.len(), (0, 0));
        self.parts.resize(state.work.len(), CountedWish::NONE);
        all.for_each(|work| self.enter(state, work));
    }

    /// Asserts that the retained counts equal those of all work counted again.
    #[cfg(test)]
    pub fn assert_recounted(&self, state: &RoundState) {
        let mut afresh = Self::default();
        afresh.by_shape.resize(self.by_shape.len(), (0, 0));
        afresh.parts.resize(self.parts.len(), CountedWish::NONE);
        state
            .work
            .indices()
            .for_each(|work| afresh.enter(state, work));
        assert_eq!(self.by_shape, afresh.by_shape, "wishes by shape");
        assert_eq!(self.listed, afresh.listed, "work with a machine list");
    }

    fn enter(&mut self, state: &RoundState, work: WorkIx) {
        let asks = match state.policy(work) {
            None | Some(Policy::Reserve) => Asks::Nothing,
            Some(_) => asks(state, work),
        };
        let shape = Some(state.work[work].shape);
        let now = CountedWish { shape, asks };
        let before = std::mem::replace(&mut self.parts[work], now);
        if before != now {
            self.count(work, before, |sum| *sum -= 1);
            self.count(work, now, |sum| *sum += 1);
            if asks == Asks::Listed {
                self.listed.insert(work);
            }
        }
    }

    fn count(&mut self, work: WorkIx, wish: CountedWish, count: impl Fn(&mut u32)) {
        let Some(shape) = wish.shape.map(|shape| &mut self.by_shape[shape]) else {
            return;
        };
        match wish.asks {
            Asks::Nothing => {}
            Asks::More => count(&mut shape.0),
            Asks::Capped => count(&mut shape.1),
            Asks::Listed => drop(self.listed.remove(&work)),
        }
    }
}

impl UnmetDemand {
    pub fn new(state: &RoundState, wishers: &Wishers) -> Self {
        let listed = wishers.listed.iter().copied();
        let mut wishes = Self {
            homes: TypedVec::filled(Wish::default(), state.forest.len()),
            listed: listed.collect(),
        };
        let shapes = state.index.shapes.enumerate().zip(wishers.by_shape.iter());
        for ((index, shape), (more, capped)) in shapes {
            let Some(home) = shape.home.filter(|_| more + capped > 0) else {
                continue;
            };
            let wish = &mut wishes.homes[home];
            if *more > 0 {
                let shapes = if shape.includes_subpools {
                    &mut wish.fair
                } else {
                    &mut wish.fixed
                };
                shapes.push((shape.quanta, index));
            }
            wish.capped.0 |= *capped > 0 && shape.includes_subpools;
            wish.capped.1 |= *capped > 0 && !shape.includes_subpools;
        }
        for wish in wishes.homes.iter_mut() {
            wish.fair.sort_unstable();
            wish.fixed.sort_unstable();
        }
        for work in reserve_work(state) {
            wishes.reserve(state, work);
        }
        wishes
    }

    fn reserve(&mut self, state: &RoundState, work: WorkIx) {
        let Some(home) = state.home(work) else { return };
        match asks(state, work) {
            Asks::Nothing => {}
            Asks::Listed => self.listed.push(work),
            Asks::More => {
                let quanta = state.work[work].process_quanta;
                let whole = &mut self.homes[home].whole;
                *whole = Some(whole.map_or(quanta, |least| least.min(quanta)));
            }
            Asks::Capped => self.homes[home].capped.1 = true,
        }
    }

    /// Returns whether each unchanged node keeps its reason. Work with a node list depends on each
    /// node, so there must be none.
    pub fn are_those(&self, before: &Self) -> bool {
        self == before && self.listed.is_empty()
    }

    /// Returns the reason why the unreserved free space of a node is idle.
    pub fn why(&self, state: &RoundState, node: NodeIx) -> IdleReason {
        let node_state = &state.nodes[node];
        let Some(pool) = node_state.pool else {
            return IdleReason::Unasked;
        };
        let listed = self
            .listed
            .iter()
            .filter(|it| state.is_permitted(**it, node));
        let listed = listed.map(|it| fits(state, node_state, *it));
        let mut why = listed.map(asked).max().unwrap_or(IdleReason::Unasked);
        for home in state.forest.path_to_root(pool) {
            why = why.max(self.homes[home].why(state, node_state, home == pool));
        }
        why
    }
}

/// Returns the reserved quanta of a node. A node that this round did not write has none.
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

impl Wish {
    fn why(&self, state: &RoundState, node: &NodeState, at_home: bool) -> IdleReason {
        let mut why = match self.capped {
            (true, _) => IdleReason::Capped,
            (_, true) if at_home => IdleReason::Capped,
            _ => IdleReason::Unasked,
        };
        if let Some(fits) = any_fits(state, node, &self.fair) {
            why = why.max(asked(fits));
        }
        if let Some(fits) = any_fits(state, node, &self.fixed).filter(|_| at_home) {
            why = why.max(asked(fits));
        }
        if let Some(least) = self.whole.filter(|_| at_home) {
            let empty = node.free.quanta == node.quanta;
            why = why.max(asked(empty && node.quanta >= least));
        }
        why
    }
}

/// Reason why space is idle. If several reasons apply, the greatest is reported.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum IdleReason {
    #[default]
    Unasked,
    Capped,
    Split,
    Kept,
}

fn asked(fits: bool) -> IdleReason {
    if fits {
        IdleReason::Kept
    } else {
        IdleReason::Split
    }
}

fn fits(state: &RoundState, node: &NodeState, work: WorkIx) -> bool {
    node.free
        .count_fitting(state.work[work].process_quanta, state.size(work))
        > 0
}

fn any_fits(state: &RoundState, node: &NodeState, shapes: &[(u64, ShapeIx)]) -> Option<bool> {
    shapes.first()?;
    let mut small = shapes.iter().take_while(|it| it.0 <= node.free.quanta);
    Some(small.any(|(quanta, shape)| {
        let size = &state.index.shapes[*shape].size;
        node.free.count_fitting(*quanta, size) > 0
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    Nothing,
    More,
    Capped,
    Listed,
}

fn asks(state: &RoundState, work: WorkIx) -> Asks {
    let work_state = &state.work[work];
    let never = |reason| {
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
    if work_state.ended || unreachable || reason.is_some_and(never) {
        return Asks::Nothing;
    }
    if reason == Some(Reason::AllotmentExceeded) {
        return Asks::Capped;
    }
    // `own` is the cap before space was considered, so work that already fills all its reachable
    // space still wants more.
    if work_state.process_count() < work_state.cap.before_space {
        let listed = work_state.has_node_list;
        return if listed { Asks::Listed } else { Asks::More };
    }
    if work_state.process_count() < work_state.cap.base {
        return Asks::Capped;
    }
    Asks::Nothing
}
