//! Number of wanted processes by shape. GPU packing uses these numbers as weights.

use hayward_vocabulary::Size;

use super::RoundState;
use crate::ids::{ShapeIx, TypedVec, WorkIx};

/// Number of wanted processes by shape. The numbers are retained between rounds, and only changed
/// work is counted again.
#[derive(Default)]
pub(crate) struct DemandByShape {
    by_shape: TypedVec<ShapeIx, u128>,
    contributions: TypedVec<WorkIx, Contribution>,
    /// Position in the journal of written work rows up to which `by_shape` is current.
    read_position: usize,
}

/// Wanted processes of one piece of work, as they were added to its shape.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Contribution {
    shape: Option<ShapeIx>,
    processes: u64,
}

impl DemandByShape {
    /// Updates the counts at the start of a round.
    pub fn refresh(&mut self, state: &RoundState) {
        self.by_shape.resize(state.index.shapes.len(), 0);
        self.contributions
            .resize(state.work.len(), Contribution::default());
        if state.index.rebuilt {
            state
                .work
                .indices()
                .for_each(|work| self.update_work(state, work));
        } else {
            state
                .work
                .dirty()
                .for_each(|work| self.update_work(state, work));
        }
        self.read_position = state.work.journal_position();
    }

    /// Updates the counts within a round. A round changes demand only by excluding work.
    pub fn apply_exclusions(&mut self, state: &RoundState) {
        let written = state.work.written_since(self.read_position);
        let excluded = written.filter(|work| state.work[*work].is_excluded());
        excluded.for_each(|work| self.update_work(state, work));
        #[cfg(test)]
        for work in state.work.written_since(self.read_position) {
            let processes_before = self.contributions[work].processes;
            self.update_work(state, work);
            let processes = self.contributions[work].processes;
            assert_eq!(processes, processes_before, "of {}", state.id(work));
        }
        self.read_position = state.work.journal_position();
    }

    fn update_work(&mut self, state: &RoundState, work: WorkIx) {
        let work_state = &state.work[work];
        // Withdrawn work leaves an empty row without a class.
        let is_counted = work_state.class.is_some() && !work_state.is_excluded();
        let wanted = work_state.cap.base.min(work_state.reach).max(1);
        let shape = work_state.shape;
        let contribution = Contribution {
            shape: Some(shape),
            processes: if is_counted { wanted } else { 0 },
        };
        let before = std::mem::replace(&mut self.contributions[work], contribution);
        if before != contribution {
            if let Some(shape) = before.shape {
                self.by_shape[shape] -= u128::from(before.processes);
            }
            self.by_shape[shape] += u128::from(contribution.processes);
        }
    }

    /// Returns the wanted processes by size.
    pub fn sizes<'b>(&'b self, state: &RoundState<'b>) -> impl Iterator<Item = (&'b Size, u128)> {
        let shapes = state.index.shapes.iter().map(|shape| &shape.size);
        let sizes = shapes.zip(self.by_shape.iter().copied());
        sizes.filter(|(_, wanted)| *wanted > 0)
    }
}
