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

use crate::{index::faulty_allocations::find_fault, state::RoundState};

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
