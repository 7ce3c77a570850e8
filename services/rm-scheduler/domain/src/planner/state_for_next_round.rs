//! Builds the state that this round passes on to the next one. All other state follows from the
//! snapshot.

use std::{collections::BTreeMap, sync::Arc};

use hayward_vocabulary::{NodeName, WorkId};

use crate::{
    input::snapshot::{Carried, Deficits},
    state::{Needy, RoundState, serve_order::reserve_work},
};

/// Returns the carried state and the needy work.
pub(super) fn build_carried_state(state: &RoundState, deficits: Deficits) -> (Carried, Needy) {
    let limits_overage = state.snapshot.tunables.reserve_overage_bytes.is_some();
    let needy = state.needy();
    let mut carried = Carried {
        needy: Arc::clone(&needy.ids),
        deficits,
        claims: reservations_by_work(state),
        last_loss: recent_preemptions(state),
        ..Carried::default()
    };
    if state.settings.churn_rounds.is_some() {
        let preempted = state.receipts.iter().map(|receipt| &receipt.work);
        let present = preempted.filter(|work| state.index.find_work(work).is_some());
        let round = state.snapshot.round;
        carried
            .last_loss
            .extend(present.map(|work| (work.clone(), round)));
    }
    let may_have_ended = !state.settings.replace_lost || !state.snapshot.carried.ended.is_empty();
    if !may_have_ended && !limits_overage {
        return (carried, needy);
    }
    for work in state.work.touched() {
        if state.work[work].ended {
            carried.ended.insert(state.id(work).clone());
        }
    }
    for work in reserve_work(state).filter(|_| limits_overage) {
        let work_state = &state.work[work];
        if work_state.has_reserved_node {
            carried
                .reserved_node_quanta
                .insert(state.id(work).clone(), work_state.process_quanta);
        }
    }
    (carried, needy)
}

/// Returns the nodes with reservations by work, so that space is not cleared twice (W-14).
fn reservations_by_work(state: &RoundState) -> BTreeMap<WorkId, Vec<NodeName>> {
    let mut nodes_by_work: BTreeMap<WorkId, Vec<NodeName>> = BTreeMap::new();
    for node in state.nodes_with_reservations.iter().copied() {
        for reservation in &state.nodes[node].reservations {
            let nodes = nodes_by_work
                .entry(state.id(reservation.work).clone())
                .or_default();
            nodes.push(state.node_record(node).name.clone());
        }
    }
    nodes_by_work
}

/// Returns the last round in which each piece of work lost an allocation to other work. Losses that
/// no longer protect the work are left out (W-32).
fn recent_preemptions(state: &RoundState) -> BTreeMap<WorkId, u64> {
    let Some(rounds) = state.settings.churn_rounds else {
        return BTreeMap::new();
    };
    let round = state.snapshot.round;
    let preemptions = state.snapshot.carried.last_loss.iter();
    preemptions
        .filter(|(_, last)| round.saturating_sub(**last) < rounds)
        .map(|(work, last)| (work.clone(), *last))
        .collect()
}
