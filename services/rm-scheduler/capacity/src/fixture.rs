//! Fixture of the planner tests: one pool with queues, nodes and work. The fixture carries out
//! plans round by round, like the services do.

use hayward_rm_scheduler_domain::{
    Plan, Planner, Snapshot, check,
    plan::VacateReason,
    snapshot::{
        Allocation, Demand, Node, Pool,
        queues::{Gang, Queued},
    },
};
use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, Timestamp, WorkId, WorkKind};
use serde_json::Value;

use crate::{Capacity, QueueView, config, queue_views};

pub const POOL: &str = "default";

#[derive(Clone)]
pub struct Fixture {
    pub snapshot: Snapshot,
    /// Number of the newest allocation. The first one is called `alc_000001`.
    last_allocation: u64,
}

pub fn size(amounts: &[(&str, u64)]) -> Size {
    let mut size = Size::default();
    for (name, amount) in amounts {
        match *name {
            "memory" => size.memory_bytes = *amount,
            "vcore" => size.cpu_milli = *amount,
            "gpu" => size.gpu_milli = *amount,
            other => {
                size.extras.insert(other.to_owned(), *amount);
            }
        }
    }
    size
}

pub fn work_id(id: &str) -> WorkId {
    id.parse().unwrap()
}

pub fn gang_named(name: &str, min: u64) -> Gang {
    Gang {
        name: name.to_owned(),
        min,
    }
}

pub fn queued_mut(demand: &mut Demand) -> &mut Queued {
    demand.queued.as_deref_mut().unwrap()
}

impl Fixture {
    /// Creates one pool with the queues of the document. Memory is in bytes.
    pub fn from_queues(document: &Value) -> Self {
        let mut snapshot = Snapshot::empty();
        snapshot.now = Timestamp::from_unix_ms(1_000_000);
        snapshot.quantum = Quantum(Size::memory(1));
        snapshot.pools.insert(POOL.to_owned(), Pool::default());
        let mut fixture = Self {
            snapshot,
            last_allocation: 0,
        };
        fixture.configure(document);
        fixture
    }

    /// Replaces the queues of the pool.
    pub fn configure(&mut self, document: &Value) {
        let queues = config::read(document).unwrap();
        self.snapshot.queues.insert(POOL.to_owned(), queues);
    }

    /// Adds a node, or returns the existing one.
    pub fn add_node(&mut self, name: &str, amounts: &[(&str, u64)]) -> &mut Node {
        let mut capacity = size(amounts);
        // Each process uses at least one byte, so there is memory for a million processes.
        capacity.memory_bytes = capacity.memory_bytes.max(1 << 20);
        let node = Node {
            pool: POOL.to_owned(),
            capacity,
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: std::collections::BTreeMap::new(),
        };
        let nodes = &mut self.snapshot.nodes;
        nodes.entry(name.parse().unwrap()).or_insert(node)
    }

    /// Adds work with one process of this size, or returns the existing work.
    pub fn add_work(&mut self, id: &str, queue: &str, amounts: &[(&str, u64)]) -> &mut Demand {
        let offset_ms = self.snapshot.demand.len() as u64;
        let demand = Demand {
            kind: WorkKind::Job,
            user: "ann".parse().unwrap(),
            class: None,
            submitted_at: self.snapshot.now.minus_ms(1_000).plus_ms(offset_ms),
            size: size(amounts),
            max_processes: 1,
            remaining_tasks: 1_000_000,
            threads: 1,
            task_ms: None,
            node_list: std::collections::BTreeSet::new(),
            avoids: std::collections::BTreeSet::new(),
            service: None,
            anti_affinity: None,
            managed: false,
            runnable: true,
            completing: false,
            keeps_what_it_holds: false,
            queued: Some(Box::new(Queued {
                queue: Some(queue.to_owned()),
                ..Queued::default()
            })),
        };
        self.snapshot.demand.entry(work_id(id)).or_insert(demand)
    }

    /// Adds work with `count` equal processes.
    pub fn add_processes(&mut self, id: &str, queue: &str, count: u64, vcore: u64) -> &mut Demand {
        let demand = self.add_work(id, queue, &[("vcore", vcore)]);
        demand.max_processes = count;
        demand
    }

    /// Adds a part of a gang, with its minimum number of processes. Its application has the name of
    /// the gang.
    pub fn add_gang_part(&mut self, id: &str, queue: &str, gang: Gang, vcore: u64) {
        let demand = self.add_processes(id, queue, gang.min, vcore);
        queued_mut(demand).application = Some(gang.name.clone());
        queued_mut(demand).gang = Some(gang);
    }

    /// Removes the oldest processes of this work, as if they had ended by themselves.
    pub fn end_processes(&mut self, id: &str, count: usize) {
        let allocations = self.snapshot.allocations.iter();
        let own = allocations.filter(|(_, allocation)| allocation.work.as_str() == id);
        let own = own.map(|(id, _)| id.clone()).take(count);
        for id in own.collect::<Vec<_>>() {
            self.snapshot.allocations.remove(&id);
        }
    }

    /// Returns the nodes reserved for a gang, with the number of processes of all parts.
    pub fn reserved_space(&self) -> Vec<(&str, u64)> {
        let carried = self.snapshot.carried.queues.get(POOL);
        let nodes = carried
            .and_then(|carried| carried.gang.as_ref())
            .map(|reservation| &reservation.nodes);
        let nodes = nodes.into_iter().flatten();
        nodes
            .map(|(name, works)| (name.as_str(), works.values().sum()))
            .collect()
    }

    /// Advances the clock of the snapshot.
    pub fn advance(&mut self, ms: u64) {
        self.snapshot.now = self.snapshot.now.plus_ms(ms);
    }

    /// Plans one round and checks the plan. The fixture does not change.
    pub fn plan(&self) -> Plan {
        let plan = Capacity.schedule(&self.snapshot);
        assert_eq!(check(&self.snapshot, &plan), Ok(()), "{plan:#?}");
        let demanded = self.snapshot.demand.keys();
        assert!(demanded.eq(plan.verdicts.keys()), "each work has a verdict");
        plan
    }

    /// Runs one round. Vacated allocations leave in the next one.
    pub fn step(&mut self) -> Plan {
        let plan = self.plan();
        self.carry_out(&plan);
        plan
    }

    pub fn carry_out(&mut self, plan: &Plan) {
        self.carry_out_except(plan, |_, _| false);
    }

    /// Carries out a plan. Allocations vacated earlier leave, except those that stop later.
    pub fn carry_out_except(
        &mut self,
        plan: &Plan,
        mut stops_later: impl FnMut(&AllocationId, &Allocation) -> bool,
    ) {
        let allocations = &mut self.snapshot.allocations;
        allocations.retain(|id, allocation| !allocation.leaving || stops_later(id, allocation));
        for vacate in &plan.vacates {
            if let Some(allocation) = self.snapshot.allocations.get_mut(&vacate.allocation) {
                allocation.leaving = true;
            }
        }
        for grant in &plan.grants {
            self.last_allocation += 1;
            let id = AllocationId::new(format!("alc_{:06}", self.last_allocation)).unwrap();
            let allocation = Allocation {
                running: true,
                running_since: Some(self.snapshot.now),
                ..grant.to_allocation(self.snapshot.now)
            };
            self.snapshot.allocations.insert(id, allocation);
        }
        self.snapshot.carried = plan.carried.clone();
        self.snapshot.round += 1;
        self.advance(1_000);
    }

    /// Runs rounds until nothing changes.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            let leaving = self
                .snapshot
                .allocations
                .values()
                .any(|allocation| allocation.leaving);
            if self.step().is_empty() && !leaving {
                return;
            }
        }
        panic!("the plan never stabilizes");
    }

    /// Returns the number of the work's allocations that stay.
    pub fn count_running(&self, id: &str) -> usize {
        let allocations = self.snapshot.allocations.values();
        allocations
            .filter(|it| it.work.as_str() == id && !it.leaving)
            .count()
    }

    pub fn queue(&self, path: &str) -> QueueView {
        queue_views(&self.snapshot, POOL)[path].clone()
    }

    /// Returns the ids of the preempted allocations.
    pub fn preempted_allocations(plan: &Plan) -> Vec<&str> {
        let vacates = plan.vacates.iter();
        let vacates = vacates.filter(|it| it.reason == VacateReason::Preempted);
        vacates.map(|it| it.allocation.as_str()).collect()
    }
}

/// Returns the work of each grant.
pub fn granted_works(plan: &Plan) -> Vec<&str> {
    plan.grants
        .iter()
        .map(|grant| grant.work.as_str())
        .collect()
}

pub fn node_name(text: &str) -> NodeName {
    text.parse().unwrap()
}
