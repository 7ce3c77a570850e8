//! Grants of this round: placed, cancelled or handed to other work.

use std::sync::Arc;

use hayward_vocabulary::Size;

use super::RoundState;
use crate::{incremental::prefetch::fetch, input::snapshot::Policy, output::plan::Grant};

/// A process placed in this round. Defragmentation may hand it to other work.
pub(crate) struct NewGrant<'a> {
    pub work: usize,
    pub node: usize,
    pub quanta: u64,
    pub size: &'a Size,
    pub gpus: Vec<u64>,
    /// False after it was cancelled.
    pub live: bool,
    /// True if it uses space that was reserved for its work.
    pub in_reserved_space: bool,
}

impl<'a> RoundState<'a> {
    /// Grants one process of this many quanta and this size on a node.
    pub fn grant(&mut self, request: usize, node: usize, quanta: u64, size: &'a Size) {
        let node_state = &mut self.nodes[node];
        let work = &mut self.work[request];
        let own = node_state
            .reservations
            .iter()
            .position(|it| it.work == request);
        if let Some(own) = own {
            node_state.reservations.remove(own);
            work.reserved = work.reserved.saturating_sub(1);
        }
        let gpus = node_state.free.choose_gpus(size.gpu_milli);
        node_state.free.take(quanta, size, &gpus);
        node_state.granted.push(self.granted.len());
        (work.placed, work.granted_quanta) = (work.placed + 1, work.granted_quanta + quanta);
        self.granted.push(NewGrant {
            work: request,
            node,
            quanta,
            size,
            gpus,
            live: true,
            in_reserved_space: own.is_some(),
        });
    }

    /// Cancels a grant of this round.
    pub fn cancel(&mut self, grant: usize) {
        let share = &mut self.granted[grant];
        share.live = false;
        let node_state = &mut self.nodes[share.node];
        node_state.free.give(share.quanta, share.size, &share.gpus);
        node_state.granted.retain(|other| *other != grant);
        let work = &mut self.work[share.work];
        (work.placed, work.granted_quanta) = (work.placed - 1, work.granted_quanta - share.quanta);
    }

    /// Hands a grant of this round to other work with processes of the same quanta.
    pub fn hand_over(&mut self, grant: usize, to: usize) {
        let share = &mut self.granted[grant];
        let giver = &mut self.work[share.work];
        (giver.placed, giver.granted_quanta) =
            (giver.placed - 1, giver.granted_quanta - share.quanta);
        let taker = &mut self.work[to];
        (taker.placed, taker.granted_quanta) =
            (taker.placed + 1, taker.granted_quanta + share.quanta);
        share.work = to;
    }

    pub fn grants(&self) -> Vec<Grant> {
        let mut grants = Vec::with_capacity(self.granted.len());
        let live = || self.granted.iter().filter(|share| share.live);
        fetch(live().map(|share| self.id(share.work).as_str()));
        fetch(live().map(|share| self.node_record(share.node).name.as_str()));
        for share in live() {
            let work_record = self.work_record(share.work);
            let Some(class) = work_record.class.map(|class| &self.index.classes[class]) else {
                continue;
            };
            // A user name is read from the class, which few users share.
            let Some(user) = class.users.name(work_record.user) else {
                continue;
            };
            grants.push(Grant {
                work: work_record.id.clone(),
                kind: work_record.kind,
                user: user.clone(),
                class: Arc::clone(&class.name),
                node: self.node_record(share.node).name.clone(),
                order: share.quanta,
                size: share.size.clone(),
                fixed: class.class.policy != Policy::FairShare,
                gpus: share.gpus.clone(),
                group: None,
            });
        }
        grants
    }
}
