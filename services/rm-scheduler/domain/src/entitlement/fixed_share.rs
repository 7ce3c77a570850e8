//! Entitlements of FIXED_SHARE groups: first come, first served, and held processes stay.

use hayward_vocabulary::{WorkKind, plural::quanta};

use super::{HoleTables, attainable_processes::explain_no_node};
use crate::{
    ids::{ClassIx, WorkIx},
    index::WorkRecord,
    output::{plan::Reason, reason::Deferral},
    state::{RoundState, WorkState},
};

/// Computes the entitlements of a group of classes, and removes the holes that they use.
pub(super) fn compute(state: &mut RoundState, tables: &mut HoleTables, classes: &[ClassIx]) {
    for work in super::work_by_class_and_age(state, classes) {
        let entitlement = match state.work_record(work).kind {
            WorkKind::Job => entitle_job(state, tables, work),
            WorkKind::Service | WorkKind::Reservation => entitle_single(state, tables, work),
        };
        state.set_entitlement(work, entitlement);
    }
}

/// Returns the entitlement of one job.
fn entitle_job(state: &mut RoundState, tables: &mut HoleTables, work: WorkIx) -> u64 {
    let Some(home) = state.home(work) else {
        return 0;
    };
    let work_state = &state.work[work];
    let (quanta, current) = (work_state.process_quanta, work_state.current);
    let wanted = if state.settings.count_what_fits {
        // Only the work's own limit shrinks it. Growth caps never do.
        work_state
            .cap
            .now
            .max(retained_processes(work_state, state.work_record(work)))
    } else {
        work_state.cap.now
    };
    let free = tables
        .get(home)
        .count_processes(quanta)
        .min(work_state.reach);
    if free == 0 && current == 0 {
        return defer(state, work, explain_no_node);
    }
    let allowed = state.allotment_left(work, quanta);
    if allowed == 0 && current == 0 && wanted > 0 {
        return defer(state, work, |state, work| {
            explain_over_allotment(state, work, quanta)
        });
    }
    let mut entitlement = wanted.min(current.saturating_add(allowed));
    if state.settings.count_what_fits {
        // Processes beyond the free space could not be placed, so the work is not entitled to them.
        entitlement = entitlement.min(current.saturating_add(free));
    }
    let added = entitlement.saturating_sub(current);
    state.use_allotment(work, quanta, added);
    // Fixed-share work does not use pools below its home (C-17).
    tables.get_mut(home).fill_smallest_first(added, quanta);
    entitlement
}

/// Returns how many of its current processes the work can keep.
fn retained_processes(work: &WorkState, work_record: &WorkRecord) -> u64 {
    let limit = if work_record.keeps_what_it_holds || work_record.completing {
        work.current
    } else {
        work_record.max_processes
    };
    work.current.min(limit)
}

/// Returns the entitlement of work with one process.
fn entitle_single(state: &mut RoundState, tables: &mut HoleTables, work: WorkIx) -> u64 {
    let Some(home) = state.home(work) else {
        return 0;
    };
    let work_state = &state.work[work];
    let quanta = work_state.process_quanta;
    if work_state.ended {
        return 0;
    }
    if work_state.current > 0 {
        return work_state.cap.now.min(1);
    }
    if work_state.cap.now == 0 {
        return 0;
    }
    if tables
        .get(home)
        .count_processes(quanta)
        .min(work_state.reach)
        == 0
    {
        return defer(state, work, explain_no_node);
    }
    if state.allotment_left(work, quanta) == 0 {
        return defer(state, work, |state, work| {
            explain_over_allotment(state, work, quanta)
        });
    }
    state.use_allotment(work, quanta, 1);
    tables.get_mut(home).fill_smallest_first(1, quanta);
    1
}

/// Stores why the work is deferred. Returns 0, its entitlement.
pub(crate) fn defer(
    state: &mut RoundState,
    work: WorkIx,
    deferral: impl FnOnce(&RoundState, WorkIx) -> Deferral,
) -> u64 {
    state.work[work].deferral = Some(Box::new(deferral(state, work)));
    0
}

/// Explains that the allotment of the user does not allow `needed` more quanta. The allotment
/// limits what a user can hold on nodes without being preemptable.
pub(crate) fn explain_over_allotment(state: &RoundState, work: WorkIx, needed: u64) -> Deferral {
    let user = &state.work_record(work).user_name;
    let (limit, used) = state.allotment(work).unwrap_or((u64::MAX, 0));
    let quantum = state.quantum_bytes(work).max(1);
    let (limit, used) = (limit / quantum, used / quantum);
    let detail = format!(
        "user {user} holds {used} of {} of room that is never taken back; this needs {needed} more",
        quanta(limit)
    );
    Deferral {
        reason: Reason::AllotmentExceeded,
        refused: false,
        detail,
    }
}
