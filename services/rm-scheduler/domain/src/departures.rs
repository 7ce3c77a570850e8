//! Step 2: vacates allocations that must leave, regardless of the entitlement of their work.
//!
//! In: rows of the index marked as faulty. Out: allocations to vacate, with a reason for each.
//! Rules: withdrawn work, lost and offline nodes, evacuations, and classes that are gone or may not
//! use the pool any more.
//!
//! This step never preempts for other work. It never vacates an unmanaged reservation, which ends
//! with its work.

pub mod disruption;
pub mod evacuation;

use hayward_vocabulary::WorkKind;

use crate::{
    ids::NodeIx,
    index::{
        faulty_allocations::find_fault,
        growth_cap::{self, HeldCounts},
        node_space::NodeSpace,
    },
    state::RoundState,
};

/// Vacates the faulty allocations, and applies the consequences to their work.
pub(crate) fn vacate_faulty(state: &mut RoundState) {
    let index = state.index;
    for allocation in index.faulty.iter().copied() {
        if let Some((reason, detail)) = find_fault(index, &index.allocations[allocation]) {
            state.vacate(allocation, reason, detail);
        }
    }
    state.apply_faults();
    if !state.settings.replace_lost {
        end_work_without_process(state);
    }
}

/// Ends work other than jobs that has lost its process. Its owner submits it again.
fn end_work_without_process(state: &mut RoundState) {
    for work in state.work.indices() {
        let work_state = &state.work[work];
        let is_single_process = state.work_record(work).kind != WorkKind::Job;
        if is_single_process && work_state.leaving > 0 && work_state.current == 0 {
            state.work[work].ended = true;
        }
    }
}

impl RoundState<'_> {
    /// Removes faulty allocations from the counts, caps and space of this round.
    fn apply_faults(&mut self) {
        let index = self.index;
        for allocation in index.faulty.iter().copied() {
            let record = &index.allocations[allocation];
            let is_open = record.node.is_none_or(|node| self.nodes[node].schedulable);
            // `resting` counts the processes on closed nodes. Without this setting it is 0.
            if let Some(work) = record.work.filter(|_| self.settings.rest_on_closed)
                && !record.leaving
                && !is_open
            {
                self.work[work].resting -= 1;
            }
            if let Some(work) = record.work {
                let work_state = &self.work[work];
                let held = HeldCounts {
                    current: work_state.current,
                    leaving: work_state.leaving,
                    ..index.work[work].usage.held_counts()
                };
                let cap = growth_cap::compute_cap(index, work, held);
                let parts = cap.parts(index, work, held);
                let current = work_state.current;
                let work_state = &mut self.work[work];
                (work_state.cap, work_state.process_count_before) = (cap, current);
                self.changed_caps.insert(work, (cap, parts));
            }
            if let Some(node) = record.node.filter(|_| record.fixed) {
                let space = self.compute_space_without_fixed(node);
                self.changed_space.insert(node, space);
            }
        }
    }

    fn compute_space_without_fixed(&self, node: NodeIx) -> NodeSpace {
        let ignores_leaving = self.settings.count_what_fits;
        let node_record = self.node_record(node);
        let mut space = NodeSpace::new(node_record.quanta, &node_record.node.capacity);
        for allocation in node_record.allocations.iter() {
            let record = &self.allocations[allocation];
            if record.fixed && !(self.leaving[allocation] && ignores_leaving) {
                space.take(record.quanta, &record.size, &record.gpus);
            }
        }
        space
    }
}
