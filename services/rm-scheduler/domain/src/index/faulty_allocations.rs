//! Faulty allocations: those that must leave, regardless of the entitlement of their work.

use hayward_vocabulary::WorkKind;

use super::{AllocationRecord, FleetIndex};
use crate::{
    ids::AllocIx,
    input::snapshot::{BlockEffect, Policy},
    output::plan::VacateReason,
};

/// Returns true if the allocation must leave and has not been vacated yet.
pub(crate) fn is_faulty(index: &FleetIndex, allocation: AllocIx) -> bool {
    let allocation = &index.allocations[allocation];
    let was_vacated = if is_lost(index, allocation) {
        allocation.purged
    } else {
        allocation.leaving
    };
    !was_vacated && find_fault(index, allocation).is_some()
}

fn is_lost(index: &FleetIndex, allocation: &AllocationRecord) -> bool {
    allocation
        .node
        .is_none_or(|node| index.nodes[node].node.lost)
}

/// Returns the reason why the allocation must leave, with a sentence for users. Returns `None` if
/// it may stay.
pub(crate) fn find_fault(
    index: &FleetIndex,
    allocation: &AllocationRecord,
) -> Option<(VacateReason, String)> {
    let Some(work) = allocation.work else {
        let detail = format!("work {} is withdrawn", allocation.work_id);
        return Some((VacateReason::WorkGone, detail));
    };
    if allocation.kind == WorkKind::Reservation {
        return None;
    }
    if is_lost(index, allocation) {
        return Some((
            VacateReason::NodeLost,
            format!("node {} was lost", allocation.node_name),
        ));
    }
    let work = &index.work[work];
    if let (None, Some(deferral)) = (work.class, &work.deferral) {
        // A managed reservation stays; its node is closed instead.
        let fault = (VacateReason::WorkGone, deferral.detail.clone());
        return (!work.managed).then_some(fault);
    }
    let node_index = allocation.node?;
    let node = &index.nodes[node_index].node;
    if let Some(block) = node
        .block
        .as_ref()
        .filter(|block| block.effect == BlockEffect::Evacuate)
    {
        let detail = format!(
            "node {} is evacuated: {}",
            allocation.node_name, block.reason
        );
        return Some((VacateReason::Blocked, detail));
    }
    if node.offline && !allocation.fixed {
        return Some((
            VacateReason::NodeOffline,
            format!("node {} was varied off", allocation.node_name),
        ));
    }
    find_misplacement(index, allocation)
}

/// Returns the fault of an allocation in a pool that its class may no longer use. Only fair-share
/// work and service instances leave such a pool.
fn find_misplacement(
    index: &FleetIndex,
    allocation: &AllocationRecord,
) -> Option<(VacateReason, String)> {
    let (work, node_index) = (allocation.work?, allocation.node?);
    let class = &index.classes[index.work[work].class?];
    let pool = index.nodes[node_index].pool?;
    let is_fair_share = class.class.policy == Policy::FairShare;
    let must_leave = is_fair_share || index.work[work].is_instance();
    if index.may_use(work, pool) || !must_leave {
        return None;
    }
    let node = &index.nodes[node_index].node;
    let detail = format!("class {:?} may not use pool {:?}", class.name, node.pool);
    Some((VacateReason::Misplaced, detail))
}
