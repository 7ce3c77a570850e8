//! Opening the books: what the register says, before anything is decided.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::WorkKind;
use rustc_hash::FxHashMap;

use super::{Books, ClassBook, Desk, Machine, Request, cap};
use crate::{
    apportion::Amounts,
    register::{Asked, Register},
    room::Room,
    snapshot::{Policy, Snapshot},
};

impl<'a> Books<'a> {
    pub fn open(desk: &mut Desk, register: &'a Register, snapshot: &'a Snapshot) -> Self {
        let mut requests = emptied(std::mem::take(&mut desk.requests), |_| None);
        let asked = register.requests.iter();
        requests.extend(asked.map(|asked| request(asked, register)));
        let mut places = emptied(std::mem::take(&mut desk.machines), |_| None);
        let classes = register.classes.iter().map(|served| ClassBook {
            name: &served.name,
            class: &served.class,
            pool: served.pool,
            users: &served.users,
            given: Amounts::default(),
            pure: 0,
            user_due: Vec::new(),
        });
        let machines = register.machines.iter().map(|station| Machine {
            name: &station.name,
            node: &station.node,
            pool: station.pool,
            order: station.order,
            schedulable: station.schedulable,
            free: station.free.clone(),
            held: &station.held,
            stirred: false,
            pending: Vec::new(),
            promised_to: None,
            spoken: Vec::new(),
            services: &station.services,
        });
        places.extend(machines);
        let mut books = Self {
            snapshot,
            settings: &snapshot.tunables.settings,
            register,
            forest: &register.forest,
            machines: places,
            held: &register.shares,
            leaving: leaving(register),
            classes: classes.collect(),
            requests,
            pending: Vec::new(),
            vacates: BTreeMap::new(),
            receipts: Vec::new(),
            fixed_used: FxHashMap::default(),
            fixed_used_in: FxHashMap::default(),
            needy: BTreeSet::new(),
            deficits: snapshot.carried.deficits.clone(),
            turns: Vec::new(),
            was_needy: Vec::new(),
            changed_rooms: BTreeMap::new(),
            changed_caps: BTreeMap::new(),
            promised: BTreeMap::new(),
            rows: std::mem::take(&mut desk.rows),
        };
        books.take_over();
        books.hold_whole_nodes();
        for at in &register.fixed {
            let share = &register.shares[*at];
            let home = register.class(&share.class);
            let home = home.and_then(|class| register.classes[class].pool);
            let each = register.quantum(home).0.memory_bytes;
            let bytes = share.order.saturating_mul(each);
            books.note_fixed(&share.user, &share.class, bytes);
        }
        books
    }

    /// Gives back what is of use for the next books.
    pub fn close(&mut self, desk: &mut Desk) {
        desk.requests = emptied(std::mem::take(&mut self.requests), |_| None);
        desk.machines = emptied(std::mem::take(&mut self.machines), |_| None);
        desk.rows = std::mem::take(&mut self.rows);
    }

    /// What the round before left for this one (14.1).
    fn take_over(&mut self) {
        let (register, carried) = (self.register, &self.snapshot.carried);
        for (id, order) in &carried.upgrades {
            if let Some(at) = register.request(id).filter(|at| self.is_whole(*at)) {
                let request = &mut self.requests[at];
                (request.order, request.upgraded) = (*order, true);
            }
        }
        for at in carried.ended.iter().filter_map(|id| register.request(id)) {
            self.requests[at].ended = register.requests[at].kind != WorkKind::Job;
        }
        let needy = carried.needy.iter();
        self.was_needy = needy.filter_map(|id| register.request(id)).collect();
    }

    fn is_whole(&self, request: usize) -> bool {
        self.policy(request) == Some(Policy::Reserve)
    }

    /// what is held says what it was upgraded to.
    fn hold_whole_nodes(&mut self) {
        for class in 0..self.classes.len() {
            if self.classes[class].class.policy != Policy::Reserve {
                continue;
            }
            for at in self.classes[class].requests() {
                let request = &mut self.requests[at];
                if let Some(last) = request.demand.held.last() {
                    (request.order, request.upgraded) = (self.held[*last].order, true);
                }
            }
        }
    }

    /// What faults took away is neither there nor in the way any more.
    pub fn settle_faults(&mut self) {
        let (register, tunables) = (self.register, &self.snapshot.tunables);
        for at in register.faulty.iter().copied() {
            let share = &register.shares[at];
            let open = share
                .machine
                .is_none_or(|machine| self.machines[machine].schedulable);
            if let Some(request) = share.request {
                let request = &mut self.requests[request];
                if !share.leaving && !open {
                    request.resting -= 1;
                }
            }
            if let Some(at) = share.request {
                let request = &self.requests[at];
                let counts = (request.current, request.leaving);
                let (cap, parts) = cap::of(register, tunables, at, counts);
                self.requests[at].cap = cap;
                self.changed_caps.insert(at, parts);
            }
            if let Some(machine) = share.machine.filter(|_| share.fixed) {
                let room = self.room_without_fixed(machine);
                self.changed_rooms.insert(machine, room);
            }
        }
    }

    fn room_without_fixed(&self, machine: usize) -> Room {
        let early = self.settings.count_what_fits;
        let machine = &self.machines[machine];
        let mut room = Room::new(machine.order, &machine.node.capacity);
        for held in machine.held {
            let share = &self.held[*held];
            if share.fixed && !(self.leaving[*held] && early) {
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
                if waits && machine_is_open && room.fitting(request.order, request.size) > 0 {
                    self.speak_for(at, machine);
                }
            }
        }
    }
}

/// Told to leave before this round, by share.
fn leaving(register: &Register) -> Vec<bool> {
    let mut leaving = vec![false; register.shares.len()];
    for at in &register.leaving {
        leaving[*at] = true;
    }
    leaving
}

/// An empty list in the memory of another: a list that is collected from one of the same layout
/// stays where it is.
fn emptied<T, U>(mut list: Vec<T>, none: impl FnMut(T) -> Option<U>) -> Vec<U> {
    list.clear();
    list.into_iter().filter_map(none).collect()
}

fn request<'a>(asked: &'a Asked, register: &'a Register) -> Request<'a> {
    Request {
        id: &asked.id,
        demand: asked,
        class: asked.class,
        order: asked.order,
        size: &register.shapes[asked.shape].3,
        shape: asked.shape,
        listed: !asked.machines.is_empty(),
        current: asked.current,
        resting: asked.resting,
        leaving: asked.leaving,
        cap: asked.cap,
        reach: u64::MAX,
        counted: 0,
        placed: 0,
        deferral: asked.deferral.clone(),
        waits: None,
        coming: 0,
        upgraded: false,
        ended: false,
        actually_needy: false,
        gave: false,
    }
}
