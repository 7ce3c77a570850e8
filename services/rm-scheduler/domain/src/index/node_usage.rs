//! What stands on a node, and what that leaves.

use std::collections::BTreeSet;

use hayward_vocabulary::WorkId;

use super::{Register, Station, allocation_usage::Taken, derive::set, node_space::Room};
use crate::incremental::join::change;

/// Where what the shares of a node come to does not say it.
pub(super) struct Counted {
    free: Room,
    /// Once everything that leaves has left.
    coming: Room,
}

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
        let some = taken.others > 0;
        let others = some.then(|| station.held.iter()).into_iter().flatten();
        let has_shape = |held: usize| register.loads[held].shape().is_some();
        for held in others.filter(|held| !has_shape(*held)) {
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
        (station.room, station.services) = (self.room, self.services);
        (station.over, station.is_plain) = (self.over, false);
        station.held_quanta = self.held_quanta;
        let (free, coming) = (self.free, self.coming);
        station.counted = Some(Box::new(Counted { free, coming }));
    }

    #[cfg(test)]
    fn assert_is(&self, station: &Station, taken: &Taken) {
        assert!(self.is_seen_here_alone(station));
        assert_eq!(
            (&self.free, &self.coming),
            (&station.free(taken), &station.coming(taken))
        );
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
    station.is_plain && station.over != taken.staying().fits(&station.room)
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

impl Station {
    fn set_free(&self, taken: &Taken, free: &mut Room) {
        match &self.counted {
            Some(counted) => free.set(&counted.free),
            None => taken.all.leave(&self.room, free),
        }
    }

    fn coming(&self, taken: &Taken) -> Room {
        if let Some(counted) = &self.counted {
            return counted.coming.clone();
        }
        let mut coming = Room::default();
        taken.staying().leave(&self.room, &mut coming);
        coming
    }

    #[cfg(test)]
    fn free(&self, taken: &Taken) -> Room {
        let mut free = Room::default();
        self.set_free(taken, &mut free);
        free
    }
}

impl Register {
    /// Makes this the room on a node that nothing is held in.
    pub fn set_free(&self, at: usize, free: &mut Room) {
        self.machines[at].set_free(&self.taken[at], free);
    }

    /// Room on a node once everything that leaves has left.
    pub fn coming(&self, at: usize) -> Room {
        self.machines[at].coming(&self.taken[at])
    }

    /// The quanta of it.
    pub fn coming_order(&self, at: usize) -> u64 {
        let station = &self.machines[at];
        let staying = || self.taken[at].staying().quanta();
        let counted = station.counted.as_ref().map(|counted| counted.coming.order);
        counted.unwrap_or_else(|| station.order.saturating_sub(staying()))
    }

    /// Brings nodes to what stands on them. Returns those that take new work now and did not
    /// before, or the other way round.
    pub(super) fn take_stands(&mut self, nodes: &[usize]) -> Vec<usize> {
        let mut stations = std::mem::take(&mut self.machines);
        let told = change(&mut stations, nodes, |at, station| {
            if is_plain(station, &self.taken[at]) {
                station.held_quanta = self.taken[at].all.quanta();
                station.counted = None;
                #[cfg(test)]
                Stand::of(self, station, &self.taken[at]).assert_is(station, &self.taken[at]);
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
