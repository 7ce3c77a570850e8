//! The books of one round: the snapshot with its cross-references, and what the round has decided
//! so far. Every step reads and writes only here.
//!
//! Invariant: `free` of a node is what is left after everything that is held there, leaving or not,
//! and everything granted in this round.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, UserName, WorkId, WorkKind};

use crate::{
    admit,
    apportion::Amounts,
    cap::Cap,
    forest::Forest,
    plan::{Grant, Reason, Vacate},
    snapshot::{Allocation, Class, Demand, Node, Policy, Snapshot},
};

pub(crate) struct Books<'a> {
    pub snapshot: &'a Snapshot,
    pub forest: Forest<'a>,
    pub machines: Vec<Machine<'a>>,
    pub machine_index: BTreeMap<&'a NodeName, usize>,
    pub held: Vec<Held<'a>>,
    pub classes: Vec<ClassBook<'a>>,
    pub requests: Vec<Request<'a>>,
    pub grants: Vec<Grant>,
    pub vacates: BTreeMap<&'a AllocationId, Vacate>,
    /// Quanta of non-preemptable room by user: held, and counted in this round [C-5].
    pub fixed_used: BTreeMap<&'a UserName, u64>,
}

pub(crate) struct Machine<'a> {
    pub name: &'a NodeName,
    pub node: &'a Node,
    pub pool: Option<usize>,
    pub order: u64,
    pub free_order: u64,
    pub free: Size,
    /// Quanta and vector without what nobody may take back.
    pub room_order: u64,
    pub room: Size,
    pub held: Vec<usize>,
    /// The request this whole node is kept for in this round.
    pub promised_to: Option<usize>,
    /// What leaves here is spoken for: nothing else may slip into it.
    pub claimed: bool,
    /// Services with an instance here.
    pub services: BTreeSet<&'a WorkId>,
}

impl Machine<'_> {
    pub fn is_schedulable(&self) -> bool {
        self.pool.is_some() && self.node.is_schedulable()
    }
}

pub(crate) struct Held<'a> {
    pub id: &'a AllocationId,
    pub allocation: &'a Allocation,
    pub machine: Option<usize>,
    pub request: Option<usize>,
    pub leaving: bool,
}

pub(crate) struct ClassBook<'a> {
    pub name: &'a str,
    pub class: &'a Class,
    /// None when the policy names a pool that does not exist.
    pub pool: Option<usize>,
    pub requests: Vec<usize>,
    pub given: Amounts,
    /// Quanta by user.
    pub user_due: BTreeMap<&'a UserName, u64>,
}

/// Why a request is left out of counting, in the words of section 13.2.
#[derive(Debug, Clone)]
pub(crate) struct Deferral {
    pub reason: Reason,
    pub refused: bool,
    pub detail: String,
}

pub(crate) struct Request<'a> {
    pub id: &'a WorkId,
    pub demand: &'a Demand,
    pub class: Option<usize>,
    pub order: u64,
    /// Size of one process as granted.
    pub size: Size,
    pub held: Vec<usize>,
    /// Held, not leaving.
    pub current: u64,
    /// Of those, on nodes that take no new work: they stay, outside the arithmetic of counts.
    pub resting: u64,
    pub leaving: u64,
    pub cap: Cap,
    /// Processes that could be held if everything preemptable gave way.
    pub reach: u64,
    pub counted: u64,
    pub placed: u64,
    pub deferral: Option<Deferral>,
    /// Whole nodes kept for it (RESERVE).
    pub promised: Vec<usize>,
    /// Room for it is on its way: processes that leaving shares will make place for.
    pub coming: u64,
}

impl Request<'_> {
    pub fn missing(&self) -> u64 {
        self.counted.saturating_sub(self.current + self.placed)
    }

    pub fn excess(&self) -> u64 {
        (self.current + self.placed).saturating_sub(self.counted)
    }

    pub fn admits(&self, machine: &Machine) -> bool {
        self.demand.machines.is_empty() || self.demand.machines.contains(machine.name)
    }

    /// Submit time, then larger order, then id.
    pub fn age(&self) -> (i64, std::cmp::Reverse<u64>, &WorkId) {
        (
            self.demand.submitted_at.unix_ms(),
            std::cmp::Reverse(self.order),
            self.id,
        )
    }
}

impl<'a> Books<'a> {
    pub fn open(snapshot: &'a Snapshot) -> Self {
        let forest = Forest::new(&snapshot.pools);
        let class_pool = |class: &Class| forest.find(&class.pool);
        let classes = snapshot
            .classes
            .iter()
            .map(|(name, class)| ClassBook {
                name,
                class,
                pool: class_pool(class),
                requests: Vec::new(),
                given: Amounts::new(),
                user_due: BTreeMap::new(),
            })
            .collect();
        let machines: Vec<Machine> = snapshot
            .nodes
            .iter()
            .map(|(name, node)| machine(snapshot, &forest, name, node))
            .collect();
        let machine_index = snapshot
            .nodes
            .keys()
            .enumerate()
            .map(|(at, name)| (name, at))
            .collect();
        let mut books = Self {
            snapshot,
            forest,
            machines,
            machine_index,
            held: Vec::new(),
            classes,
            requests: Vec::new(),
            grants: Vec::new(),
            vacates: BTreeMap::new(),
            fixed_used: BTreeMap::new(),
        };
        books.enter_requests();
        books.enter_held();
        books
    }

    fn enter_requests(&mut self) {
        let mut holders: BTreeSet<&WorkId> = BTreeSet::new();
        holders.extend(
            self.snapshot
                .allocations
                .values()
                .map(|allocation| &allocation.work),
        );
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
            self.requests
                .push(request(id, demand, class, deferral, &self.snapshot.quantum));
        }
    }

    fn enter_held(&mut self) {
        let works: BTreeMap<&WorkId, usize> = self
            .requests
            .iter()
            .enumerate()
            .map(|(at, request)| (request.id, at))
            .collect();
        for (id, allocation) in &self.snapshot.allocations {
            let at = self.held.len();
            let machine = self.machine_index.get(&allocation.node).copied();
            let request = works.get(&allocation.work).copied();
            let leaving = allocation.leaving || allocation.purged;
            if let Some(machine) = machine {
                let machine = &mut self.machines[machine];
                machine.free_order = machine.free_order.saturating_sub(allocation.order);
                machine.free.take(&allocation.size);
                machine.held.push(at);
                if let Some(service) =
                    request.and_then(|r| self.requests[r].demand.service.as_ref())
                {
                    machine.services.insert(service);
                }
            }
            if let Some(request) = request {
                let request = &mut self.requests[request];
                request.held.push(at);
                request.leaving += u64::from(leaving);
                request.current += u64::from(!leaving);
            }
            if allocation.fixed {
                *self.fixed_used.entry(&allocation.user).or_default() += allocation.order;
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

    pub fn policy(&self, request: usize) -> Option<Policy> {
        self.requests[request]
            .class
            .map(|class| self.classes[class].class.policy)
    }

    /// Home pool of a request's class.
    pub fn home(&self, request: usize) -> Option<usize> {
        self.requests[request]
            .class
            .and_then(|class| self.classes[class].pool)
    }

    /// May this request ever use this node, by pool and list?
    pub fn is_permitted(&self, request: usize, machine: usize) -> bool {
        let (Some(home), Some(pool)) = (self.home(request), self.machines[machine].pool) else {
            return false;
        };
        let in_pool = match self.policy(request) {
            Some(Policy::FairShare) => self.forest.is_within(pool, home),
            _ => pool == home,
        };
        in_pool && self.requests[request].admits(&self.machines[machine])
    }

    /// Gives one process of `order` quanta and `size` on this node.
    pub fn grant(&mut self, request: usize, machine: usize, order: u64, size: Size) {
        let fixed = self.policy(request) != Some(Policy::FairShare);
        let Some(class) = self.requests[request].class else {
            return;
        };
        let place = &mut self.machines[machine];
        let work = &mut self.requests[request];
        place.free_order = place.free_order.saturating_sub(order);
        place.free.take(&size);
        if let Some(service) = &work.demand.service {
            place.services.insert(service);
        }
        work.placed += 1;
        self.grants.push(Grant {
            work: work.id.clone(),
            kind: work.demand.kind,
            user: work.demand.user.clone(),
            class: self.classes[class].name.to_owned(),
            node: place.name.clone(),
            order,
            size,
            fixed,
        });
    }

    /// Tells a share to leave. It keeps its room, and no longer satisfies its request.
    pub fn vacate(&mut self, held: usize, vacate: Vacate) {
        let share = &mut self.held[held];
        if !share.leaving {
            share.leaving = true;
            if let Some(request) = share.request {
                self.requests[request].current -= 1;
                self.requests[request].leaving += 1;
            }
        }
        self.vacates.insert(share.id, vacate);
    }

    /// The user's own limit on non-preemptable quanta, or the global one.
    pub fn allotment(&self, user: &UserName) -> Option<u64> {
        self.snapshot
            .users
            .get(user)
            .and_then(|user| user.max_allotment_quanta)
            .or(self.snapshot.tunables.global_allotment_quanta)
    }

    /// Quanta the user may still take of non-preemptable room.
    pub fn allotment_left(&self, user: &UserName) -> u64 {
        let holds = self.fixed_used.get(user).copied().unwrap_or(0);
        self.allotment(user)
            .map_or(u64::MAX, |limit| limit.saturating_sub(holds))
    }
}

fn machine<'a>(
    snapshot: &Snapshot,
    forest: &Forest,
    name: &'a NodeName,
    node: &'a Node,
) -> Machine<'a> {
    let order = snapshot.quantum.node_order(&node.capacity);
    Machine {
        name,
        node,
        pool: forest.find(&node.pool),
        order,
        free_order: order,
        free: node.capacity.clone(),
        room_order: order,
        room: node.capacity.clone(),
        held: Vec::new(),
        promised_to: None,
        claimed: false,
        services: BTreeSet::new(),
    }
}

fn request<'a>(
    id: &'a WorkId,
    demand: &'a Demand,
    class: Option<usize>,
    deferral: Option<Deferral>,
    quantum: &Quantum,
) -> Request<'a> {
    // A reservation that names no size takes any machine; its order is known with its node.
    let order = quantum.work_order(&demand.size);
    let size = match demand.kind {
        WorkKind::Reservation => demand.size.clone(),
        _ => quantum.granted(&demand.size),
    };
    Request {
        id,
        demand,
        class,
        order,
        size,
        held: Vec::new(),
        current: 0,
        resting: 0,
        leaving: 0,
        cap: Cap::default(),
        reach: 0,
        counted: 0,
        placed: 0,
        deferral,
        promised: Vec::new(),
        coming: 0,
    }
}
