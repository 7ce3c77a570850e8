//! Grants of this round, which are placed, cancelled or transferred to other work.

use std::sync::Arc;

use hayward_vocabulary::Size;

use super::RoundState;
use crate::{
    ids::{NodeIx, WorkIx},
    input::snapshot::Policy,
    output::plan::Grant,
};

/// A process placed in this round. Defragmentation may transfer it to other work.
pub(crate) struct NewGrant<'a> {
    pub work: WorkIx,
    pub node: NodeIx,
    pub quanta: u64,
    pub size: &'a Size,
    pub gpus: Vec<u64>,
    /// False if the grant was cancelled.
    pub live: bool,
    /// True if the grant uses space that was reserved for its work.
    pub in_reserved_space: bool,
}

impl<'a> RoundState<'a> {
    /// Grants one process of this many quanta and this size on a node.
    pub fn grant(&mut self, work: WorkIx, node: NodeIx, quanta: u64, size: &'a Size) {
        let node_state = &mut self.nodes[node];
        let work_state = &mut self.work[work];
        let reservation = node_state
            .reservations
            .iter()
            .position(|reservation| reservation.work == work);
        if let Some(reservation) = reservation {
            node_state.reservations.remove(reservation);
            work_state.reserved = work_state.reserved.saturating_sub(1);
        }
        let gpus = node_state.free.choose_gpus(size.gpu_milli);
        node_state.free.take(quanta, size, &gpus);
        node_state.granted.push(self.granted.len());
        (work_state.placed, work_state.granted_quanta) =
            (work_state.placed + 1, work_state.granted_quanta + quanta);
        self.granted.push(NewGrant {
            work,
            node,
            quanta,
            size,
            gpus,
            live: true,
            in_reserved_space: reservation.is_some(),
        });
    }

    /// Cancels a grant of this round.
    pub fn cancel(&mut self, grant: usize) {
        let placed = &mut self.granted[grant];
        placed.live = false;
        let node_state = &mut self.nodes[placed.node];
        node_state
            .free
            .give(placed.quanta, placed.size, &placed.gpus);
        node_state.granted.retain(|other| *other != grant);
        let work = &mut self.work[placed.work];
        (work.placed, work.granted_quanta) = (work.placed - 1, work.granted_quanta - placed.quanta);
    }

    /// Transfers a grant of this round to other work with processes of the same quanta.
    pub fn transfer(&mut self, grant: usize, to: WorkIx) {
        let placed = &mut self.granted[grant];
        let from = &mut self.work[placed.work];
        (from.placed, from.granted_quanta) = (from.placed - 1, from.granted_quanta - placed.quanta);
        let receiver = &mut self.work[to];
        (receiver.placed, receiver.granted_quanta) =
            (receiver.placed + 1, receiver.granted_quanta + placed.quanta);
        placed.work = to;
    }

    /// Returns the grants that were not cancelled, as the plan lists them.
    pub fn grants(&self) -> Vec<Grant> {
        let mut grants = Vec::with_capacity(self.granted.len());
        for placed in self.granted.iter().filter(|placed| placed.live) {
            let work_record = self.work_record(placed.work);
            let Some(class) = work_record.class.map(|class| &self.index.classes[class]) else {
                continue;
            };
            // The user name is read from the class, because its user list is short.
            let Some(user) = class.users.name(work_record.user) else {
                continue;
            };
            grants.push(Grant {
                work: work_record.id.clone(),
                kind: work_record.kind,
                user: user.clone(),
                class: Arc::clone(&class.name),
                node: self.node_record(placed.node).name.clone(),
                quanta: placed.quanta,
                size: placed.size.clone(),
                fixed: class.class.policy != Policy::FairShare,
                gpus: placed.gpus.clone(),
                group: None,
            });
        }
        grants
    }
}
