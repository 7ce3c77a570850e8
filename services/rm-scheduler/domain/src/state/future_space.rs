//! Room on nodes once everything that leaves has left. Many nodes are asked about, and most of them
//! are as the round began with them.

use super::{Books, Spoken};
use crate::index::node_space::Room;

impl Books<'_> {
    /// Room on a node once everything that leaves has left, without what was granted and what is
    /// meant for somebody.
    pub fn coming_room(&self, machine: usize) -> Room {
        self.coming_room_for(machine, None)
    }

    /// The same with what is meant for this request.
    pub fn coming_room_for(&self, at: usize, except: Option<usize>) -> Room {
        let mut room = self.emptied_room(at);
        // What nobody wrote in this round is not waited for.
        if self.machines.is_written(at) {
            let machine = &self.machines[at];
            for share in machine.pending.iter().map(|at| &self.pending[*at]) {
                room.take(share.order, share.size, &share.gpus);
            }
            let meant = machine.spoken.iter();
            for meant in meant.filter(|it| Some(it.request) != except) {
                room.take(meant.order, self.size(meant.request), &meant.gpus);
            }
        }
        room
    }

    /// The same before anything was granted or meant for anybody.
    fn emptied_room(&self, at: usize) -> Room {
        if self.told(at).is_empty() || self.adds_up(at) {
            let mut room = self.register.coming(at);
            for held in self.told(at) {
                self.register.give_to(&mut room, *held);
            }
            return room;
        }
        let station = self.station(at);
        let mut room = Room::new(station.order, &station.node.capacity);
        for held in station.held.iter().filter(|held| !self.leaving[*held]) {
            self.register.take_from(&mut room, held);
        }
        room
    }

    /// Shares of a node that were told to leave in this round.
    fn told(&self, at: usize) -> &[usize] {
        if self.machines.is_written(at) {
            &self.machines[at].told
        } else {
            &[]
        }
    }

    /// What leaves a node is room there: not where more was held than there is, and gpus are looked
    /// at one by one.
    fn adds_up(&self, at: usize) -> bool {
        let station = self.station(at);
        !station.over && station.room.gpus.is_empty()
    }

    /// The quanta of [`Books::coming_room`].
    pub fn coming_order(&self, at: usize) -> u64 {
        self.coming_order_for(at, None)
    }

    /// The quanta of [`Books::coming_room_for`].
    pub fn coming_order_for(&self, at: usize, except: Option<usize>) -> u64 {
        let machine = &self.machines[at];
        if !self.machines.is_written(at) {
            return machine.coming_order;
        }
        let order = |held: usize| self.register.loads[held].order;
        let before = if machine.told.is_empty() || self.adds_up(at) {
            machine.coming_order + machine.told.iter().copied().map(order).sum::<u64>()
        } else {
            let held = self.station(at).held.iter();
            let stays = held.filter(|held| !self.leaving[*held]);
            stays.map(order).fold(machine.order, u64::saturating_sub)
        };
        let granted = machine.pending.iter().map(|at| self.pending[*at].order);
        let meant = machine.spoken.iter();
        let meant = meant.filter(|meant| Some(meant.request) != except);
        let meant = meant.map(|meant| meant.order);
        granted.chain(meant).fold(before, u64::saturating_sub)
    }

    /// Means this much of what will be free on a node for a request.
    pub fn speak_for(&mut self, request: usize, machine: usize) {
        let (order, size) = (self.requests[request].order, self.size(request));
        let gpus = match size.gpu_milli {
            0 => Vec::new(),
            milli => self.coming_room(machine).choose_gpus(milli),
        };
        self.machines[machine].spoken.push(Spoken {
            request,
            order,
            gpus,
        });
        self.spoken_on.insert(machine);
        self.requests[request].coming += 1;
    }
}
