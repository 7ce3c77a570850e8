//! What stands on a node, and what that leaves.

use std::collections::BTreeSet;

use hayward_vocabulary::Size;

use super::{Register, derive::set};

impl Register {
    /// True when it takes new work now and did not before, or the other way round.
    pub(super) fn refresh_machine(&mut self, at: usize) -> bool {
        let early = self.laws.tunables.settings.count_what_fits;
        let station = &self.machines[at];
        let mut open = station.pool.is_some() && station.node.is_schedulable();
        let mut free = crate::room::Room::new(station.order, &station.node.capacity);
        let mut room = free.clone();
        let mut services = BTreeSet::new();
        let mut coming = free.clone();
        let (mut order, mut size) = (0_u64, Size::default());
        let mut held_quanta = 0;
        for held in station.held.iter().copied() {
            let load = &self.loads[held];
            held_quanta += load.order;
            if let Some(shape) = load.shape() {
                let taken = &self.shapes[shape].3;
                free.take(load.order, taken, &[]);
                if !load.leaving {
                    coming.take(load.order, taken, &[]);
                    order = order.saturating_add(load.order);
                    size.add(taken);
                }
                continue;
            }
            let share = &self.shares[held];
            free.take(share.order, &share.size, &share.gpus);
            if share.fixed && !(share.leaving && early) {
                room.take(share.order, &share.size, &share.gpus);
            }
            if !share.leaving {
                coming.take(share.order, &share.size, &share.gpus);
                order = order.saturating_add(share.order);
                size.add(&share.size);
            }
            let Some(request) = share.request else {
                continue;
            };
            services.extend(self.requests[request].wishes().service.clone());
            // room held by work that belongs to no class, or may not be there any
            // more and stays all the same, closes its node until it goes. What leaves does not.
            let misplaced = share.fixed
                && !self.requests[request].is_instance()
                && station.pool.is_none_or(|pool| !self.may_use(request, pool));
            open &= self.requests[request].class.is_some() && !misplaced;
        }
        let over = order > station.order || !size.fits(&station.node.capacity);
        set(&mut self.overfull, at, over);
        let station = &self.machines[at];
        let turned = station.schedulable != open;
        let moved = turned || station.room != room;
        if moved {
            self.forget_kind(at);
            self.open_for(at, open);
        }
        let station = &mut self.machines[at];
        (station.free, station.room, station.coming) = (free, room, coming);
        (station.services, station.held_quanta) = (services, held_quanta);
        if let Some(pool) = station.pool.filter(|_| open && moved) {
            *self.kinds.entry((pool, station.room.clone())).or_default() += 1;
            self.kinds_moved = true;
        }
        turned
    }
}
