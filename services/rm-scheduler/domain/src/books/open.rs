//! Opening the books: who asks, what is held where, which class serves whom.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Quantum, WorkId, WorkKind};

use super::{Books, ClassBook, Deferral, Held, Machine, Request};
use crate::{
    admit,
    apportion::Amounts,
    cap::Cap,
    forest::Forest,
    room::Room,
    snapshot::{Demand, Node, Policy, Snapshot},
};

impl<'a> Books<'a> {
    pub fn open(snapshot: &'a Snapshot) -> Self {
        let forest = Forest::new(&snapshot.pools);
        let own: Vec<Option<&Quantum>> = snapshot
            .pools
            .values()
            .map(|pool| pool.quantum.as_ref())
            .collect();
        let quanta: Vec<&Quantum> = (0..forest.len())
            .map(|pool| own[forest.root(pool)].unwrap_or(&snapshot.quantum))
            .collect();
        let classes = snapshot
            .classes
            .iter()
            .map(|(name, class)| ClassBook {
                name,
                class,
                pool: forest.find(&class.pool),
                requests: Vec::new(),
                given: Amounts::new(),
                pure: 0,
                user_due: BTreeMap::new(),
            })
            .collect();
        let machines: Vec<Machine> = snapshot
            .nodes
            .iter()
            .map(|(name, node)| {
                let pool = forest.find(&node.pool);
                let quantum = pool.map_or(&snapshot.quantum, |pool| quanta[pool]);
                machine(quantum, pool, name, node)
            })
            .collect();
        let machine_index = snapshot
            .nodes
            .keys()
            .enumerate()
            .map(|(at, name)| (name, at))
            .collect();
        let mut books = Self {
            snapshot,
            settings: &snapshot.tunables.settings,
            forest,
            quanta,
            machines,
            machine_index,
            held: Vec::new(),
            classes,
            requests: Vec::new(),
            pending: Vec::new(),
            vacates: BTreeMap::new(),
            receipts: Vec::new(),
            fixed_used: BTreeMap::new(),
            needy: BTreeSet::new(),
            deficits: snapshot.carried.deficits.clone(),
            turns: Vec::new(),
        };
        books.enter_requests();
        books.enter_held();
        books.close_nodes_of_the_classless();
        books
    }

    fn enter_requests(&mut self) {
        let allocations = self.snapshot.allocations.values();
        let holders: BTreeSet<&WorkId> = allocations.map(|allocation| &allocation.work).collect();
        let class_names: BTreeMap<&str, usize> = self
            .classes
            .iter()
            .enumerate()
            .map(|(at, class)| (class.name, at))
            .collect();
        for (id, demand) in &self.snapshot.demand {
            let admitted = admit::class_of(self.snapshot, demand, holders.contains(id));
            let (class, deferral) = match admitted {
                Ok(name) => (class_names.get(name).copied(), None),
                Err(deferral) => (None, Some(deferral)),
            };
            if let Some(class) = class {
                self.classes[class].requests.push(self.requests.len());
            }
            let request = self.request(id, demand, class, deferral);
            self.requests.push(request);
        }
    }

    fn request(
        &self,
        id: &'a WorkId,
        demand: &'a Demand,
        class: Option<usize>,
        deferral: Option<Deferral>,
    ) -> Request<'a> {
        let home = class.and_then(|class| self.classes[class].pool);
        let quantum = home.map_or(&self.snapshot.quantum, |pool| self.quanta[pool]);
        // A reservation that names no size takes any machine; its order is known with its node.
        let order = quantum.work_order(&demand.size);
        let whole = class.is_some_and(|class| self.classes[class].class.policy == Policy::Reserve);
        let upgrade = self.snapshot.carried.upgrades.get(id).filter(|_| whole);
        let size = match demand.kind {
            WorkKind::Reservation if whole => demand.size.clone(),
            _ => quantum.granted(&demand.size),
        };
        let single = demand.kind != WorkKind::Job;
        Request {
            id,
            demand,
            class,
            order: upgrade.copied().unwrap_or(order),
            size,
            held: Vec::new(),
            current: 0,
            resting: 0,
            leaving: 0,
            cap: Cap::default(),
            reach: u64::MAX,
            counted: 0,
            placed: 0,
            deferral,
            waits: None,
            promised: Vec::new(),
            coming: 0,
            pure: 0,
            upgraded: upgrade.is_some(),
            ended: single && self.snapshot.carried.ended.contains(id),
            actually_needy: false,
            hit: false,
        }
    }

    fn enter_held(&mut self) {
        let works: BTreeMap<&WorkId, usize> = self
            .requests
            .iter()
            .enumerate()
            .map(|(at, request)| (request.id, at))
            .collect();
        let class_names: BTreeMap<&str, usize> = self
            .classes
            .iter()
            .enumerate()
            .map(|(at, class)| (class.name, at))
            .collect();
        for (id, allocation) in &self.snapshot.allocations {
            let at = self.held.len();
            let machine = self.machine_index.get(&allocation.node).copied();
            let request = works.get(&allocation.work).copied();
            let leaving = allocation.leaving || allocation.purged;
            if let Some(machine) = machine {
                let service = request.and_then(|r| self.requests[r].demand.service.as_ref());
                let machine = &mut self.machines[machine];
                let (order, size) = (allocation.order, &allocation.size);
                machine.free.take(order, size, &allocation.gpus);
                machine.held.push(at);
                machine.services.extend(service);
            }
            if let Some(request) = request {
                self.hold(request, at, allocation.order, leaving);
            }
            if allocation.fixed {
                let class = class_names.get(allocation.class.as_str()).copied();
                let home = class.and_then(|class| self.classes[class].pool);
                let quantum = home.map_or(&self.snapshot.quantum, |pool| self.quanta[pool]);
                let bytes = allocation.order.saturating_mul(quantum.0.memory_bytes);
                let used = self.fixed_used.entry(&allocation.user).or_default();
                *used.entry(&allocation.class).or_default() += bytes;
            }
            self.held.push(Held {
                id,
                allocation,
                machine,
                request,
                leaving,
            });
        }
    }

    fn hold(&mut self, request: usize, held: usize, order: u64, leaving: bool) {
        let whole = self.policy(request) == Some(Policy::Reserve);
        let request = &mut self.requests[request];
        request.held.push(held);
        request.leaving += u64::from(leaving);
        request.current += u64::from(!leaving);
        if whole {
            // what is held says what it was upgraded to.
            (request.order, request.upgraded) = (order, true);
        }
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
        let requests: BTreeMap<&WorkId, usize> = (0..)
            .zip(&self.requests)
            .map(|(at, it)| (it.id, at))
            .collect();
        for (work, nodes) in &snapshot.carried.claims {
            let Some(at) = requests.get(work).copied() else {
                continue;
            };
            for node in nodes {
                let Some(machine) = self.machine_index.get(node).copied() else {
                    continue;
                };
                let request = &self.requests[at];
                let waits = !request.is_out() && request.missing() > request.coming;
                let machine_is_open = self.in_tree(machine, tree)
                    && self.machines[machine].is_schedulable()
                    && self.machines[machine].promised_to.is_none()
                    && self.is_permitted(at, machine);
                let room = self.coming_room(machine);
                if waits && machine_is_open && room.fitting(request.order, &request.size) > 0 {
                    self.speak_for(at, machine);
                }
            }
        }
    }

    /// room held by work that belongs to no class, or may not be there any more
    /// and cannot be moved, closes its node until it goes.
    fn close_nodes_of_the_classless(&mut self) {
        for at in 0..self.held.len() {
            let share = &self.held[at];
            let (Some(request), Some(machine)) = (share.request, share.machine) else {
                continue;
            };
            let misplaced = share.allocation.fixed
                && self.machines[machine]
                    .pool
                    .is_none_or(|pool| !self.may_use(request, pool));
            if self.requests[request].class.is_none() || misplaced {
                self.machines[machine].schedulable = false;
            }
        }
    }
}

fn machine<'a>(
    quantum: &Quantum,
    pool: Option<usize>,
    name: &'a NodeName,
    node: &'a Node,
) -> Machine<'a> {
    let order = quantum.node_order(&node.capacity);
    let room = Room::new(order, &node.capacity);
    Machine {
        name,
        node,
        pool,
        order,
        schedulable: pool.is_some() && node.is_schedulable(),
        free: room.clone(),
        room,
        held: Vec::new(),
        pending: Vec::new(),
        promised_to: None,
        spoken: Vec::new(),
        services: BTreeSet::new(),
    }
}
