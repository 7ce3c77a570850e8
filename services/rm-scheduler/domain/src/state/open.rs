//! Opening the books: what the register says, before anything is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use hayward_vocabulary::WorkKind;
use rustc_hash::FxHashMap;

use super::{
    Books, ClassBook, Desk, Machine, Request,
    derived::Sets,
    needy::{Needy, WasNeedy},
};
use crate::{
    entitlement::apportion::Amounts,
    incremental::{idle_trees::Outcome, join::both, tracked_vec::Kept},
    index::{
        Register,
        growth_cap::{self, Has},
        node_space::Room,
    },
    input::{
        settings::Settings,
        snapshot::{Policy, Snapshot},
    },
    preemption::budget::Opened,
};

impl<'a> Books<'a> {
    pub fn open(desk: &mut Desk, register: &'a Register, snapshot: &'a Snapshot) -> Self {
        let classes = register.classes.iter().map(|served| ClassBook {
            name: &served.name,
            class: &served.class,
            pool: served.pool,
            users: &served.users,
            given: Amounts::default(),
            pure: 0,
            user_due: Vec::new(),
        });
        let settings = &snapshot.tunables.settings;
        let (machines, requests) = rows(desk, register, settings);
        let mut leaving = std::mem::take(&mut desk.leaving);
        leaving.clear();
        leaving.extend(register.leaving.iter().copied());
        let mut books = Self {
            snapshot,
            settings,
            register,
            forest: &register.forest,
            machines,
            held: &register.shares,
            leaving,
            classes: classes.collect(),
            requests,
            pending: std::mem::take(&mut desk.pending),
            vacates: Vec::new(),
            vacate_at: FxHashMap::default(),
            receipts: Vec::new(),
            fixed_used: FxHashMap::default(),
            fixed_used_in: FxHashMap::default(),
            deficits: snapshot.carried.deficits.clone(),
            turns: Vec::new(),
            was_needy: WasNeedy::default(),
            spoken_on: BTreeSet::new(),
            changed_rooms: BTreeMap::new(),
            changed_caps: BTreeMap::new(),
            promised: BTreeMap::new(),
            outcomes: std::mem::take(&mut desk.outcomes),
            passes: AtomicBool::new(false),
            brakes: FxHashMap::default(),
            budget: Opened::default(),
            sets: std::mem::take(&mut desk.sets),
        };
        books
            .outcomes
            .resize_with(books.forest.len(), Outcome::default);
        books.take_over(std::mem::take(&mut desk.needy));
        books.hold_whole_nodes();
        books.note_what_is_fixed();
        books
    }

    /// Bytes of what is never taken back, by user.
    fn note_what_is_fixed(&mut self) {
        let register = self.register;
        for at in &register.fixed {
            let share = &register.shares[*at];
            let home = register.class(&share.class);
            let home = home.and_then(|class| register.classes[class].pool);
            let each = register.quantum(home).0.memory_bytes;
            let bytes = share.order.saturating_mul(each);
            self.note_fixed(&share.user, &share.class, bytes);
        }
    }

    /// Gives back what is of use for the next books, with who is carried over as needy.
    pub fn close(&mut self, desk: &mut Desk, needy: Needy) {
        desk.requests = std::mem::take(&mut self.requests);
        desk.machines = std::mem::take(&mut self.machines);
        desk.leaving = std::mem::take(&mut self.leaving);
        if !self.register.anew {
            // Most rounds try and cancel about as much as the one before. All is granted but once.
            let pending = std::mem::take(&mut self.pending).into_iter();
            desk.pending = pending.map_while(|_| None).collect();
        }
        desk.outcomes = std::mem::take(&mut self.outcomes);
        desk.needy = needy;
        desk.sets = std::mem::take(&mut self.sets);
    }

    /// What the round before left for this one (14.1).
    fn take_over(&mut self, needy: Needy) {
        let (register, carried) = (self.register, &self.snapshot.carried);
        for (id, order) in &carried.upgrades {
            if let Some(at) = register.request(id).filter(|at| self.is_whole(*at)) {
                if register.requests[at].held.is_empty() {
                    // Nothing but what is carried says so, which may say otherwise next time.
                    let request = &mut self.requests[at];
                    (request.order, request.upgraded) = (*order, true);
                } else {
                    self.upgrade(at, *order);
                }
            }
        }
        for at in carried.ended.iter().filter_map(|id| register.request(id)) {
            self.requests[at].ended = register.requests[at].kind != WorkKind::Job;
        }
        self.was_needy = WasNeedy::of(register, &carried.needy, needy);
    }

    /// What stands already is not written, or it would be stirred in every round.
    fn upgrade(&mut self, at: usize, order: u64) {
        let request = &self.requests[at];
        if (request.order, request.upgraded) != (order, true) {
            let request = &mut self.requests[at];
            (request.order, request.upgraded) = (order, true);
        }
    }

    fn is_whole(&self, request: usize) -> bool {
        self.policy(request) == Some(Policy::Reserve)
    }

    /// what is held says what it was upgraded to.
    fn hold_whole_nodes(&mut self) {
        let register = self.register;
        for class in 0..self.classes.len() {
            if self.classes[class].class.policy != Policy::Reserve {
                continue;
            }
            for at in self.classes[class].requests() {
                if let Some(last) = register.requests[at].held.last() {
                    self.upgrade(at, self.held[last].order);
                }
            }
        }
    }

    /// What faults took away is neither there nor in the way any more.
    pub fn settle_faults(&mut self) {
        let register = self.register;
        for at in register.faulty.iter().copied() {
            let share = &register.shares[at];
            let open = share
                .machine
                .is_none_or(|machine| self.machines[machine].schedulable);
            // Where it is not set, nothing rests in the arithmetic.
            if let Some(request) = share.request.filter(|_| self.settings.rest_on_closed)
                && !share.leaving
                && !open
            {
                self.requests[request].resting -= 1;
            }
            if let Some(at) = share.request {
                let request = &self.requests[at];
                let has = Has {
                    current: request.current,
                    leaving: request.leaving,
                    ..register.requests[at].holding.has()
                };
                let cap = growth_cap::of(register, at, has);
                let parts = cap.parts(register, at, has);
                let had = request.current;
                let request = &mut self.requests[at];
                (request.cap, request.had) = (cap, had);
                self.changed_caps.insert(at, (cap, parts));
            }
            if let Some(machine) = share.machine.filter(|_| share.fixed) {
                let room = self.room_without_fixed(machine);
                self.changed_rooms.insert(machine, room);
            }
        }
    }

    fn room_without_fixed(&self, machine: usize) -> Room {
        let early = self.settings.count_what_fits;
        let station = self.station(machine);
        let mut room = Room::new(station.order, &station.node.capacity);
        for held in station.held.iter() {
            let share = &self.held[held];
            if share.fixed && !(self.leaving[held] && early) {
                room.take(share.order, &share.size, &share.gpus);
            }
        }
        room
    }

    /// Room that was made for work which still waits stays meant for it, as long as it suffices.
    pub fn renew_claims(&mut self, tree: usize) {
        if !self.settings.count_leaving_room {
            return;
        }
        let snapshot = self.snapshot;
        if snapshot.carried.claims.is_empty() {
            return;
        }
        for (work, nodes) in &snapshot.carried.claims {
            let Some(at) = self.register.request(work) else {
                continue;
            };
            for node in nodes {
                let Some(machine) = self.register.machine(node) else {
                    continue;
                };
                let request = &self.requests[at];
                let waits = !request.is_out() && request.missing() > request.coming;
                let machine_is_open = self.in_tree(machine, tree)
                    && self.machines[machine].is_schedulable()
                    && self.machines[machine].promised_to.is_none()
                    && self.is_permitted(at, machine);
                let room = self.coming_room(machine);
                if waits && machine_is_open && room.fitting(request.order, self.size(at)) > 0 {
                    self.speak_for(at, machine);
                }
            }
        }
    }
}

/// The rows of nodes and work as the register says them; what is kept beside them follows.
fn rows(
    desk: &mut Desk,
    register: &Register,
    settings: &Settings,
) -> (Kept<Machine>, Kept<Request>) {
    let mut machines = std::mem::take(&mut desk.machines);
    let mut requests = std::mem::take(&mut desk.requests);
    if register.anew {
        machines.fill((0..register.machines.len()).map(|at| Machine::of(register, at)));
        let asked = register.requests.iter();
        requests.fill(asked.map(|asked| Request::of(asked, settings)));
        // Work and pools have other numbers now.
        desk.sets = Sets::default();
        desk.outcomes.clear();
        return (machines, requests);
    }
    let renew = || {
        let changed = register.changed_machines.iter().copied();
        let fresh = |at| Machine::of(register, at);
        machines.renew(changed, fresh, |at, row, was_written| {
            row.renew(register, at, was_written);
        });
        #[cfg(test)]
        for (at, row) in machines.iter().enumerate() {
            row.assert_is(&Machine::of(register, at));
        }
        let changed = register.touched.iter().chain(&register.refreshed);
        let fresh = |at: usize| Request::of(&register.requests[at], settings);
        requests.renew(changed.copied(), fresh, |at, row, _| {
            let fresh = fresh(at);
            let class = fresh.class.map(|class| &register.classes[class].class);
            let fair = class.is_some_and(|class| class.policy == Policy::FairShare);
            // Who counts fair shares knows what was counted for them.
            let counted = if fair { row.counted } else { 0 };
            *row = Request { counted, ..fresh };
        });
    };
    let (parties, splices) = (&mut desk.sets.parties, &register.splices);
    both(splices.len(), renew, || parties.splice(splices));
    (machines, requests)
}
