//! What has to leave whatever anybody is due: withdrawn work, lost and offline nodes, evacuations,
//! classes that are gone or may not be there any more.
//!
//! An unmanaged reservation is never taken away (I12); it goes when its work goes.

use hayward_vocabulary::WorkKind;

use crate::{
    books::{Books, Held},
    plan::{Vacate, VacateReason},
    snapshot::{BlockEffect, Policy},
};

pub(crate) fn faults(books: &mut Books) {
    for at in 0..books.held.len() {
        let share = &books.held[at];
        let lost = share
            .machine
            .is_none_or(|machine| books.machines[machine].node.lost);
        let told = if lost {
            share.allocation.purged
        } else {
            share.leaving
        };
        if told {
            continue;
        }
        if let Some((reason, detail)) = fault(books, share, lost) {
            let allocation = share.id.clone();
            books.vacate(
                at,
                Vacate {
                    allocation,
                    reason,
                    detail,
                    purge: lost,
                },
            );
        }
    }
}

fn fault(books: &Books, share: &Held, lost: bool) -> Option<(VacateReason, String)> {
    let allocation = share.allocation;
    let Some(request) = share.request else {
        let detail = format!("work {} is withdrawn", allocation.work);
        return Some((VacateReason::WorkGone, detail));
    };
    if allocation.kind == WorkKind::Reservation {
        return None;
    }
    if lost {
        return Some((
            VacateReason::NodeLost,
            format!("node {} was lost", allocation.node),
        ));
    }
    let request = &books.requests[request];
    if let (None, Some(deferral)) = (request.class, &request.deferral) {
        return Some((VacateReason::WorkGone, deferral.detail.clone()));
    }
    let machine = share.machine?;
    let node = books.machines[machine].node;
    if let Some(block) = node
        .block
        .as_ref()
        .filter(|b| b.effect == BlockEffect::Evacuate)
    {
        let detail = format!("node {} is evacuated: {}", allocation.node, block.reason);
        return Some((VacateReason::Blocked, detail));
    }
    if allocation.fixed {
        return None;
    }
    if node.offline {
        return Some((
            VacateReason::NodeOffline,
            format!("node {} was varied off", allocation.node),
        ));
    }
    let class = &books.classes[request.class?];
    let outside = match (class.pool, books.machines[machine].pool) {
        (Some(home), Some(pool)) => !books.forest.is_within(pool, home),
        _ => false,
    };
    if outside && class.class.policy == Policy::FairShare {
        let detail = format!("class {:?} may not use pool {:?}", class.name, node.pool);
        return Some((VacateReason::Preempted, detail));
    }
    None
}
