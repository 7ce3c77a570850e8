//! What has to leave whatever anybody is due: withdrawn work, lost and offline nodes, evacuations,
//! classes that are gone or may not be there any more.
//!
//! An unmanaged reservation is never taken away (I12); it goes when its work goes.

pub mod disruption;
pub mod evacuation;

use hayward_vocabulary::WorkKind;

use crate::{
    index::{Register, Share},
    input::snapshot::{BlockEffect, Policy},
    output::plan::VacateReason,
    state::Books,
};

pub(crate) fn faults(books: &mut Books) {
    let register = books.register;
    for at in register.faulty.iter().copied() {
        if let Some((reason, detail)) = fault(register, &register.shares[at]) {
            books.vacate(at, reason, detail);
        }
    }
    books.settle_faults();
    if !books.settings.replace_lost {
        end_what_lost_its_process(books);
    }
}

/// Does it have to leave, and was not told so yet?
pub(crate) fn is_faulty(register: &Register, share: usize) -> bool {
    let share = &register.shares[share];
    let told = if is_lost(register, share) {
        share.purged
    } else {
        share.leaving
    };
    !told && fault(register, share).is_some()
}

fn is_lost(register: &Register, share: &Share) -> bool {
    share
        .machine
        .is_none_or(|machine| register.machines[machine].node.lost)
}

/// work other than jobs is over once its process is; its owner asks anew.
fn end_what_lost_its_process(books: &mut Books) {
    for at in 0..books.requests.len() {
        let request = &books.requests[at];
        let single = books.demand(at).kind != WorkKind::Job;
        if single && request.leaving > 0 && request.current == 0 {
            books.requests[at].ended = true;
        }
    }
}

fn fault(register: &Register, share: &Share) -> Option<(VacateReason, String)> {
    let allocation = share;
    let Some(request) = share.request else {
        let detail = format!("work {} is withdrawn", allocation.work);
        return Some((VacateReason::WorkGone, detail));
    };
    if allocation.kind == WorkKind::Reservation {
        return None;
    }
    if is_lost(register, share) {
        return Some((
            VacateReason::NodeLost,
            format!("node {} was lost", allocation.node),
        ));
    }
    let request = &register.requests[request];
    if let (None, Some(deferral)) = (request.class, &request.deferral) {
        // a managed reservation is left alone; its node is closed instead.
        let gone = (VacateReason::WorkGone, deferral.detail.clone());
        return (!request.managed).then_some(gone);
    }
    let machine = share.machine?;
    let node = &register.machines[machine].node;
    if let Some(block) = node
        .block
        .as_ref()
        .filter(|b| b.effect == BlockEffect::Evacuate)
    {
        let detail = format!("node {} is evacuated: {}", allocation.node, block.reason);
        return Some((VacateReason::Blocked, detail));
    }
    if node.offline && !allocation.fixed {
        return Some((
            VacateReason::NodeOffline,
            format!("node {} was varied off", allocation.node),
        ));
    }
    misplaced(register, share)
}

/// fair shares and instances of services leave where their class may not be any more.
fn misplaced(register: &Register, share: &Share) -> Option<(VacateReason, String)> {
    let (request, machine) = (share.request?, share.machine?);
    let class = &register.classes[register.requests[request].class?];
    let pool = register.machines[machine].pool?;
    let fair = class.class.policy == Policy::FairShare;
    let moves = fair || register.requests[request].is_instance();
    if register.may_use(request, pool) || !moves {
        return None;
    }
    let node = &register.machines[machine].node;
    let detail = format!("class {:?} may not use pool {:?}", class.name, node.pool);
    Some((VacateReason::Misplaced, detail))
}
