//! What stands on a node, and what that leaves.

use std::collections::BTreeSet;

use hayward_vocabulary::{Size, WorkId};

use super::{Register, Station, derive::set, load::Taken};
use crate::{beside::change, room::Room};

struct Stand {
    /// It takes new work.
    open: bool,
    over: bool,
    free: Room,
    /// Without what nobody may take back.
    room: Room,
    coming: Room,
    held_quanta: u64,
    services: BTreeSet<WorkId>,
}

impl Stand {
    fn of(register: &Register, station: &Station, taken: &Taken) -> Self {
        let early = register.laws.tunables.settings.count_what_fits;
        let mut open = station.pool.is_some() && station.node.is_schedulable();
        let mut free = Room::new(station.order, &station.node.capacity);
        let mut room = free.clone();
        let mut services = BTreeSet::new();
        let mut coming = free.clone();
        let (mut held_quanta, all) = taken.all.load();
        free.take(held_quanta, &all, &[]);
        let (mut order, mut size) = taken.staying().load();
        coming.take(order, &size, &[]);
        let held = if taken.others > 0 {
            station.held.as_slice()
        } else {
            &[]
        };
        let has_shape = |held: usize| register.loads[held].shape().is_some();
        for held in held.iter().copied().filter(|held| !has_shape(*held)) {
            let share = &register.shares[held];
            held_quanta = held_quanta.saturating_add(share.order);
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
            services.extend(register.requests[request].wishes().service.clone());
            // room held by work that belongs to no class, or may not be there any
            // more and stays all the same, closes its node until it goes. What leaves does not.
            let misplaced = share.fixed
                && !register.requests[request].is_instance()
                && station
                    .pool
                    .is_none_or(|pool| !register.may_use(request, pool));
            open &= register.requests[request].class.is_some() && !misplaced;
        }
        Self {
            open,
            over: order > station.order || !size.fits(&station.node.capacity),
            free,
            room,
            coming,
            held_quanta,
            services,
        }
    }

    /// Others are told where it is not so.
    fn is_seen_here_alone(&self, station: &Station) -> bool {
        let (open, over) = (station.schedulable, station.over);
        (self.open, self.over) == (open, over) && self.room == station.room
    }

    fn write(self, station: &mut Station) {
        (station.free, station.room, station.coming) = (self.free, self.room, self.coming);
        (station.services, station.held_quanta) = (self.services, self.held_quanta);
        (station.over, station.is_plain) = (self.over, false);
    }

    #[cfg(test)]
    fn assert_is(&self, station: &Station) {
        assert!(self.is_seen_here_alone(station));
        assert_eq!((&self.free, &self.coming), (&station.free, &station.coming));
        assert_eq!(self.held_quanta, station.held_quanta);
        assert_eq!(self.services, station.services);
    }
}

/// Nothing stands there that has to be looked at by itself, and what others are told of the node is
/// as it was: then what its shares come to says all.
fn is_plain(station: &mut Station, taken: &Taken) -> bool {
    if taken.others > 0 {
        return false;
    }
    // Found once, most of the node is not waited for again.
    station.is_plain = station.is_plain || has_plain_room(station);
    let (order, size) = taken.staying().load();
    let over = order > station.order || !size.fits(&station.node.capacity);
    station.is_plain && station.over == over
}

/// Nothing there is counted one by one, and where nothing stands in the way nothing is known to.
fn has_plain_room(station: &Station) -> bool {
    let capacity = &station.node.capacity;
    capacity.gpu_milli == 0
        && capacity.extras.is_empty()
        && station.schedulable == (station.pool.is_some() && station.node.is_schedulable())
        && station.room.order == station.order
        && station.room.size == *capacity
        && station.services.is_empty()
}

/// What [`Stand`] says of such a node.
fn write_plain(station: &mut Station, taken: &Taken) {
    let capacity = &station.node.capacity;
    let write = |room: &mut Room, (order, size): &(u64, Size)| {
        room.order = station.order.saturating_sub(*order);
        room.size.memory_bytes = capacity.memory_bytes.saturating_sub(size.memory_bytes);
        room.size.cpu_milli = capacity.cpu_milli.saturating_sub(size.cpu_milli);
    };
    let all = taken.all.load();
    write(&mut station.free, &all);
    write(&mut station.coming, &taken.staying().load());
    station.held_quanta = all.0;
}

impl Register {
    /// Brings nodes to what stands on them. Returns those that take new work now and did not
    /// before, or the other way round.
    pub(super) fn take_stands(&mut self, nodes: &[usize]) -> Vec<usize> {
        let mut stations = std::mem::take(&mut self.machines);
        let told = change(&mut stations, nodes, |at, station| {
            if is_plain(station, &self.taken[at]) {
                write_plain(station, &self.taken[at]);
                #[cfg(test)]
                Stand::of(self, station, &self.taken[at]).assert_is(station);
                return None;
            }
            let stand = Stand::of(self, station, &self.taken[at]);
            if stand.is_seen_here_alone(station) {
                stand.write(station);
                return None;
            }
            Some((at, stand))
        });
        self.machines = stations;
        let turned = told.into_iter().filter_map(|(at, stand)| {
            let turned = self.take_stand(at, stand);
            turned.then_some(at)
        });
        turned.collect()
    }

    /// True when the node takes new work now and did not before, or the other way round.
    fn take_stand(&mut self, at: usize, stand: Stand) -> bool {
        set(&mut self.overfull, at, stand.over);
        let station = &self.machines[at];
        let turned = station.schedulable != stand.open;
        let moved = turned || station.room != stand.room;
        if moved {
            self.forget_kind(at);
            self.open_for(at, stand.open);
        }
        let (station, open) = (&mut self.machines[at], stand.open);
        stand.write(station);
        if let Some(pool) = station.pool.filter(|_| open && moved) {
            *self.kinds.entry((pool, station.room.clone())).or_default() += 1;
            self.kinds_moved = true;
        }
        turned
    }
}
