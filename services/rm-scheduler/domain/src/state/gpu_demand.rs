//! Demand by shape, for the weights of GPU packing.

use hayward_vocabulary::Size;

use super::RoundState;
use crate::ids::{ShapeIx, TypedVec, WorkIx};

/// Wanted processes by shape. The counts are kept between rounds, and only changed work is counted
/// again.
#[derive(Default)]
pub(crate) struct GpuDemand {
    by_shape: TypedVec<ShapeIx, u128>,
    /// Shape of each piece of work, and the number of processes that it adds to that shape.
    parts: TypedVec<WorkIx, (Option<ShapeIx>, u64)>,
    /// Position in the log of written work rows up to which `by_shape` is current.
    seen: usize,
}

impl GpuDemand {
    pub fn renew(&mut self, state: &RoundState) {
        self.by_shape.resize(state.index.shapes.len(), 0);
        self.parts.resize(state.work.len(), (None, 0));
        if state.index.rebuilt {
            state
                .work
                .indices()
                .for_each(|work| self.enter(state, work));
        } else {
            state.work.dirty().for_each(|work| self.enter(state, work));
        }
        self.seen = state.work.journal_position();
    }

    /// Updates the counts within a round. A round changes demand only by excluding work.
    pub fn follow(&mut self, state: &RoundState) {
        let delta = state.work.written_since(self.seen);
        let out = delta.filter(|work| state.work[*work].is_excluded());
        out.for_each(|work| self.enter(state, work));
        #[cfg(test)]
        for work in state.work.written_since(self.seen) {
            let known = self.parts[work];
            self.enter(state, work);
            assert_eq!(self.parts[work].1, known.1, "of {}", state.id(work));
        }
        self.seen = state.work.journal_position();
    }

    fn enter(&mut self, state: &RoundState, work: WorkIx) {
        let work_state = &state.work[work];
        // Withdrawn work leaves an empty row without a class.
        let is_counted = work_state.class.is_some() && !work_state.is_excluded();
        let wanted = work_state.cap.base.min(work_state.reach).max(1);
        let shape = work_state.shape;
        let part = (Some(shape), if is_counted { wanted } else { 0 });
        let before = std::mem::replace(&mut self.parts[work], part);
        if before != part {
            if let (Some(shape), wanted) = before {
                self.by_shape[shape] -= u128::from(wanted);
            }
            self.by_shape[shape] += u128::from(part.1);
        }
    }

    /// Returns the wanted processes by size.
    pub fn sizes<'b>(&'b self, state: &RoundState<'b>) -> impl Iterator<Item = (&'b Size, u128)> {
        let shapes = state.index.shapes.iter().map(|shape| &shape.size);
        let sizes = shapes.zip(self.by_shape.iter().copied());
        sizes.filter(|(_, wanted)| *wanted > 0)
    }
}
