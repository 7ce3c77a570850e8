//! What a round grants: placed, taken up again, handed to others, and said at the end.

use std::sync::Arc;

use hayward_vocabulary::Size;

use super::Books;
use crate::{incremental::prefetch::fetch, input::snapshot::Policy, output::plan::Grant};

/// Placed in this round. What mending takes from one and hands to another changes its request.
pub(crate) struct Pending<'a> {
    pub request: usize,
    pub machine: usize,
    pub order: u64,
    pub size: &'a Size,
    pub gpus: Vec<u64>,
    /// False once it was cancelled.
    pub live: bool,
    /// It stands in room that was made for it.
    pub meant: bool,
}

impl<'a> Books<'a> {
    /// Gives one process of `order` quanta and `size` on this node.
    pub fn grant(&mut self, request: usize, machine: usize, order: u64, size: &'a Size) {
        let place = &mut self.machines[machine];
        let work = &mut self.requests[request];
        let own = place.spoken.iter().position(|it| it.request == request);
        if let Some(own) = own {
            place.spoken.remove(own);
            work.coming = work.coming.saturating_sub(1);
        }
        let gpus = place.free.choose_gpus(size.gpu_milli);
        place.free.take(order, size, &gpus);
        place.pending.push(self.pending.len());
        (work.placed, work.granted) = (work.placed + 1, work.granted + order);
        self.pending.push(Pending {
            request,
            machine,
            order,
            size,
            gpus,
            live: true,
            meant: own.is_some(),
        });
    }

    /// Takes back what was granted in this round.
    pub fn cancel(&mut self, pending: usize) {
        let share = &mut self.pending[pending];
        share.live = false;
        let place = &mut self.machines[share.machine];
        place.free.give(share.order, share.size, &share.gpus);
        place.pending.retain(|other| *other != pending);
        let work = &mut self.requests[share.request];
        (work.placed, work.granted) = (work.placed - 1, work.granted - share.order);
    }

    /// Hands what was granted in this round to another request of the same order.
    pub fn hand_over(&mut self, pending: usize, to: usize) {
        let share = &mut self.pending[pending];
        let giver = &mut self.requests[share.request];
        (giver.placed, giver.granted) = (giver.placed - 1, giver.granted - share.order);
        let taker = &mut self.requests[to];
        (taker.placed, taker.granted) = (taker.placed + 1, taker.granted + share.order);
        share.request = to;
    }

    pub fn grants(&self) -> Vec<Grant> {
        let mut grants = Vec::with_capacity(self.pending.len());
        let live = || self.pending.iter().filter(|share| share.live);
        fetch(live().map(|share| self.id(share.request).as_str()));
        fetch(live().map(|share| self.station(share.machine).name.as_str()));
        for share in live() {
            let asked = self.demand(share.request);
            let Some(class) = asked.class.map(|class| &self.register.classes[class]) else {
                continue;
            };
            // A class has few users, and they are at hand sooner than what each piece of work says.
            let Some(user) = class.users.name(asked.user_at) else {
                continue;
            };
            grants.push(Grant {
                work: asked.id.clone(),
                kind: asked.kind,
                user: user.clone(),
                class: Arc::clone(&class.name),
                node: self.station(share.machine).name.clone(),
                order: share.order,
                size: share.size.clone(),
                fixed: class.class.policy != Policy::FairShare,
                gpus: share.gpus.clone(),
                group: None,
            });
        }
        grants
    }
}
