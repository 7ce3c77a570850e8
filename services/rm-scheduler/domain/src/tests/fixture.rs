//! A small fleet for tests. [`Fixture::step`] plans a round and carries the plan out, as the
//! services do.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, NodeName, Quantum, Size, Timestamp, WorkId, WorkKind};

use crate::{
    FairShare, Plan, Planner, Snapshot, check,
    input::{
        settings::Settings,
        snapshot::{Allocation, Block, BlockEffect, Class, Demand, Node, Policy, Pool, Tunables},
    },
    output::plan::WorkShare,
    state::budget::HourlyPreemptions,
};

pub const GIB: u64 = hayward_vocabulary::resources::GIB;

/// Policy, priority and weight of a class.
#[derive(Clone, Copy)]
pub(crate) struct ClassTerms {
    policy: Policy,
    priority: i64,
    weight: u64,
}

pub(crate) fn terms(policy: Policy, priority: i64, weight: u64) -> ClassTerms {
    ClassTerms {
        policy,
        priority,
        weight,
    }
}

/// A fleet, with builders for its classes, nodes and work. Each builder adds one entry.
pub struct Fixture {
    pub snapshot: Snapshot,
    /// Number of rounds from the vacate of an allocation until it is gone.
    pub departure_rounds: u64,
    /// Milliseconds from the grant of a process until it runs.
    pub start_ms: u64,
    /// Round at the end of which a vacated allocation is gone.
    end_rounds: BTreeMap<AllocationId, u64>,
    hourly_preemptions: HourlyPreemptions,
    /// Number of grants so far. Numbers the allocations.
    granted_count: u64,
}

pub fn node_name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

pub fn work_id(text: &str) -> WorkId {
    WorkId::new(text).unwrap()
}

impl Fixture {
    /// Creates a fleet with one pool, and one class for each policy: `fair`, `fixed` and `reserve`.
    /// The quantum is 1 GiB.
    pub fn new() -> Self {
        let tunables = Tunables {
            initialization_cap: 2,
            use_prediction: false,
            cycle_ms: 1_000,
            // The worked examples show the limits of growth.
            settings: Settings {
                grow_into_free_space: false,
                ..Settings::default()
            },
            ..Tunables::default()
        };
        let snapshot = Snapshot {
            now: Timestamp::from_unix_ms(1_000_000),
            quantum: Quantum(Size::memory(GIB)),
            tunables,
            pools: BTreeMap::from([("default".into(), Pool::default())]),
            ..Snapshot::empty()
        };
        let mut fixture = Self {
            snapshot,
            departure_rounds: 1,
            start_ms: 500,
            end_rounds: BTreeMap::new(),
            hourly_preemptions: HourlyPreemptions::default(),
            granted_count: 0,
        };
        fixture.class("fair", terms(Policy::FairShare, 10, 100), "default");
        fixture.class("fixed", terms(Policy::FixedShare, 5, 100), "default");
        fixture.class("reserve", terms(Policy::Reserve, 1, 100), "default");
        for name in ["fair", "fixed", "reserve"] {
            fixture.snapshot.classes.get_mut(name).unwrap().default = true;
        }
        fixture
    }

    /// Creates the same fleet as [`Self::new`], but jobs may start with any number of processes.
    pub fn eager() -> Self {
        let mut fixture = Self::new();
        fixture.snapshot.tunables.initialization_cap = 0;
        fixture
    }

    /// Adds a class, or replaces the class of this name.
    pub fn class(&mut self, name: &str, terms: ClassTerms, pool: &str) {
        let class = Class {
            policy: terms.policy,
            priority: terms.priority,
            weight: terms.weight,
            pool: pool.into(),
            default: false,
            users: std::collections::BTreeSet::new(),
            position: 0,
            debug_class: None,
            growth: crate::input::snapshot::Growth::default(),
        };
        self.snapshot.classes.insert(name.into(), class);
    }

    /// Adds a node to a pool, or replaces the node of this name. It has ample CPU.
    pub fn node_in(&mut self, pool: &str, name: &str, quanta: u64) {
        let node = Node {
            pool: pool.into(),
            capacity: Size {
                cpu_milli: 1_000_000,
                ..Size::memory(quanta * GIB)
            },
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        self.snapshot.nodes.insert(node_name(name), node);
    }

    /// Adds nodes of these quanta to the pool `default`. Their names are `n00`, `n01` and so on.
    pub fn nodes(mut self, quanta: &[u64]) -> Self {
        for (index, quanta) in quanta.iter().enumerate() {
            self.node_in("default", &format!("n{index:02}"), *quanta);
        }
        self
    }

    /// Returns the node of this name, so that a test can change it.
    pub fn node(&mut self, name: &str) -> &mut Node {
        self.snapshot.nodes.get_mut(name).unwrap()
    }

    /// Blocks a node.
    pub fn block(&mut self, name: &str, effect: BlockEffect) {
        self.node(name).block = Some(Block {
            effect,
            reason: "a test says so".into(),
        });
    }

    /// Adds work, submitted one millisecond after the work before it.
    fn add_demand(&mut self, kind: WorkKind, id: &str, user: &str, quanta: u64) -> &mut Demand {
        let has_one_process = kind != WorkKind::Job;
        let submitted_ms = i64::try_from(self.snapshot.demand.len()).unwrap();
        let demand = Demand {
            kind,
            user: user.parse().unwrap(),
            class: None,
            submitted_at: Timestamp::from_unix_ms(submitted_ms),
            size: Size::memory(quanta * GIB),
            max_processes: if has_one_process { 1 } else { 100_000 },
            remaining_tasks: if has_one_process { 1 } else { 100_000 },
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
            queued: None,
        };
        self.snapshot.demand.entry(work_id(id)).or_insert(demand)
    }

    /// Adds a job for any number of processes, with this many quanta each.
    pub fn job(&mut self, id: &str, user: &str, quanta: u64) -> &mut Demand {
        self.add_demand(WorkKind::Job, id, user, quanta)
    }

    /// Adds a job like [`Self::job`] to a class.
    pub fn job_in(&mut self, class: &str, id: &str, user: &str, quanta: u64) -> &mut Demand {
        let demand = self.job(id, user, quanta);
        demand.class = Some(class.into());
        demand
    }

    /// Adds a service with one instance.
    pub fn service(&mut self, id: &str, user: &str, quanta: u64) -> &mut Demand {
        self.add_demand(WorkKind::Service, id, user, quanta)
    }

    /// Adds a reservation of a whole node of at least this many quanta.
    pub fn reservation(&mut self, id: &str, user: &str, quanta: u64) -> &mut Demand {
        self.add_demand(WorkKind::Reservation, id, user, quanta)
    }

    pub fn demand_mut(&mut self, id: &str) -> &mut Demand {
        self.snapshot.demand.get_mut(id).unwrap()
    }

    /// Plans a round without carrying it out. Asserts that the plan passes the check.
    pub fn plan(&self) -> Plan {
        let plan = FairShare.schedule(&self.snapshot);
        assert_eq!(check(&self.snapshot, &plan), Ok(()), "{plan:#?}");
        assert_eq!(plan.shares.faults(), Vec::<String>::new(), "{plan:#?}");
        plan
    }

    /// Runs one round: plans, carries the plan out, and advances the time by one cycle.
    pub fn step(&mut self) -> Plan {
        let plan = self.plan();
        self.carry_out(&plan);
        plan
    }

    /// Carries out a plan as the services do, and advances the time by one cycle.
    pub fn carry_out(&mut self, plan: &Plan) {
        for grant in &plan.grants {
            self.granted_count += 1;
            let allocation = Allocation {
                running: true,
                running_since: Some(self.snapshot.now.plus_ms(self.start_ms)),
                ..grant.to_allocation(self.snapshot.now)
            };
            let id = AllocationId::new(format!("alc_{:06}", self.granted_count)).unwrap();
            self.snapshot.allocations.insert(id, allocation);
            let demand = self.snapshot.demand.get_mut(&grant.work).unwrap();
            if demand.kind == WorkKind::Job {
                demand.task_ms.get_or_insert(1_000);
            }
        }
        let round = self.snapshot.round;
        for vacate in &plan.vacates {
            self.snapshot
                .allocations
                .get_mut(&vacate.allocation)
                .unwrap()
                .leaving = true;
            let end_round = if vacate.purge {
                round
            } else {
                round + self.departure_rounds - 1
            };
            self.end_rounds.insert(vacate.allocation.clone(), end_round);
        }
        let ended: Vec<_> = self
            .end_rounds
            .iter()
            .filter(|(_, end_round)| **end_round <= round)
            .map(|(id, _)| id.clone())
            .collect();
        for id in ended {
            self.end_rounds.remove(&id);
            self.snapshot.allocations.remove(&id);
        }
        self.snapshot.carried = plan.carried.clone();
        self.hourly_preemptions
            .record_receipts(&self.snapshot, &plan.receipts);
        self.snapshot.round += 1;
        self.snapshot.now = self.snapshot.now.plus_ms(self.snapshot.tunables.cycle_ms);
        self.hourly_preemptions.expire_minutes(self.snapshot.now);
        self.snapshot.preempted_quanta = self.hourly_preemptions.preempted_quanta().clone();
    }

    /// Runs rounds. Returns the number of processes of a piece of work after each of them.
    pub fn current_processes(&mut self, id: &str, rounds: usize) -> Vec<u64> {
        (0..rounds)
            .map(|_| share(&self.step(), id).current)
            .collect()
    }

    /// Runs rounds. Returns, for each piece of work and round, the processes without leaving ones,
    /// all processes, and the entitlement.
    pub fn record_rounds(&mut self, ids: &[&str], rounds: usize) -> Vec<Vec<(u64, u64, u64)>> {
        let mut records = vec![Vec::new(); ids.len()];
        for _ in 0..rounds {
            let plan = self.step();
            for (index, id) in ids.iter().enumerate() {
                let share = share(&plan, id);
                records[index].push((share.current, share.current + share.leaving, share.counted));
            }
        }
        records
    }
}

/// Returns the share of a piece of work in a plan.
pub fn share(plan: &Plan, id: &str) -> WorkShare {
    plan.shares
        .classes
        .values()
        .flat_map(|class| class.users.values())
        .find_map(|user| user.work.get(id))
        .copied()
        .unwrap()
}
