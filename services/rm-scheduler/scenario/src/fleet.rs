//! A simulated fleet: it applies events and plans, and processes start and end after the number of
//! cycles in the document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayward_rm_scheduler_domain::{
    FairShare, Plan, Planner,
    budget::HourlyPreemptions,
    snapshot::{Allocation, Policy, Snapshot},
};
use hayward_vocabulary::{AllocationId, NodeName, Quantum, Timestamp, WorkId, WorkKind};

use crate::{
    Error,
    document::{Document, Event, Investment, Simulation},
    policy::{self, Defaults},
    validate::PolicyParts,
};

pub struct Fleet {
    pub snapshot: Snapshot,
    pub simulation: Simulation,
    pub defaults: Defaults,
    pub written: PolicyParts,
    /// Reported memory in bytes, before the withheld part.
    pub reported: BTreeMap<NodeName, u64>,
    /// Time per item. The planner knows it from the first refresh on.
    pub item_ms: BTreeMap<WorkId, Option<u64>>,
    /// Work of an unknown kind, which is rejected before planning.
    pub unknown_kinds: BTreeSet<WorkId>,
    pub cycle: u64,
    /// Cycle in which each process was placed.
    placed: BTreeMap<AllocationId, u64>,
    /// Cycle in which each process was ordered to leave.
    pub ordered_at: BTreeMap<AllocationId, u64>,
    known: BTreeSet<WorkId>,
    /// Preemptions of the last hour (B5).
    hour: HourlyPreemptions,
    refused: BTreeSet<WorkId>,
    born: u64,
}

impl Fleet {
    pub fn new(document: &Document) -> Result<Self, Error> {
        let mut snapshot = Snapshot::empty();
        snapshot.tunables = policy::shipped();
        let mut defaults = Defaults::default();
        policy::settings(&document.settings, &mut snapshot, &mut defaults);
        let written = PolicyParts {
            nodepools: document.nodepools.clone(),
            classes: document.classes.clone(),
        };
        written.enforce(&mut snapshot, Some(&document.users))?;
        Ok(Self {
            snapshot,
            simulation: document.simulation.clone(),
            defaults,
            written,
            reported: BTreeMap::new(),
            item_ms: BTreeMap::new(),
            unknown_kinds: BTreeSet::new(),
            cycle: 0,
            placed: BTreeMap::new(),
            ordered_at: BTreeMap::new(),
            known: BTreeSet::new(),
            hour: HourlyPreemptions::default(),
            refused: BTreeSet::new(),
            born: 0,
        })
    }

    /// Applies the events of a cycle, plans it and applies the plan.
    pub fn cycle(&mut self, cycle: u64, events: &[Event]) -> Result<Plan, Error> {
        self.cycle = cycle;
        self.snapshot.round = cycle;
        let now = cycle.saturating_mul(self.simulation.cycle_ms.0);
        self.snapshot.now = Timestamp::from_unix_ms(i64::try_from(now).unwrap_or(i64::MAX));
        self.confirm_departures();
        self.drop_refused();
        for event in events {
            self.apply(event)?;
        }
        self.refresh();
        self.hour.expire_minutes(self.snapshot.now);
        self.snapshot.preempted_quanta = self.hour.preempted_quanta().clone();
        let plan = FairShare.schedule(&self.snapshot);
        self.hour.record_receipts(&self.snapshot, &plan.receipts);
        self.carry_out(&plan);
        Ok(plan)
    }

    /// Ends a cycle after its outcome was read.
    pub fn finish(&mut self, plan: Plan) {
        self.snapshot.carried = plan.carried;
        self.known = self.snapshot.demand.keys().cloned().collect();
    }

    /// Confirms departures.
    fn confirm_departures(&mut self) {
        let lag = self.simulation.release_lag_cycles;
        let (ordered_at, cycle) = (&mut self.ordered_at, self.cycle);
        let gone: Vec<AllocationId> = ordered_at
            .iter()
            .filter(|(_, since)| since.saturating_add(lag) <= cycle)
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.forget(&id);
        }
    }

    pub fn forget(&mut self, id: &AllocationId) {
        self.ordered_at.remove(id);
        self.placed.remove(id);
        self.snapshot.allocations.remove(id);
    }

    /// Removes rejected work after it was published once. Processes it still holds are
    /// waited for.
    fn drop_refused(&mut self) {
        self.unknown_kinds.clear();
        let holders: BTreeSet<WorkId> = self
            .snapshot
            .allocations
            .values()
            .map(|it| it.work.clone())
            .collect();
        let gone: Vec<WorkId> = self.refused.difference(&holders).cloned().collect();
        for work in gone {
            self.refused.remove(&work);
            self.snapshot.demand.remove(&work);
            self.item_ms.remove(&work);
        }
    }

    /// Refreshes the state of every job from before this cycle.
    fn refresh(&mut self) {
        for (id, allocation) in &mut self.snapshot.allocations {
            let placed = self.placed.get(id).copied().unwrap_or(self.cycle);
            let age = self.cycle.saturating_sub(placed);
            if !self.known.contains(&allocation.work) {
                continue;
            }
            let lag = self.simulation.init_lag_cycles;
            allocation.running = age >= lag;
            let started = allocation.granted_at;
            allocation.running_since = allocation
                .running
                .then(|| started.plus_ms(self.simulation.init_time_ms.0));
            allocation.investment_ms =
                allocation
                    .running
                    .then(|| match self.simulation.investment {
                        Investment::Age => (age - lag).saturating_mul(self.simulation.cycle_ms.0),
                        Investment::Zero => 0,
                    });
            if let Some(demand) = self.snapshot.demand.get_mut(&allocation.work)
                && allocation.running
            {
                demand.runnable = true;
            }
        }
        for (id, demand) in &mut self.snapshot.demand {
            let item_ms = self.item_ms.get(id).copied().flatten();
            demand.task_ms = item_ms.filter(|_| demand.runnable);
        }
    }

    fn carry_out(&mut self, plan: &Plan) {
        for vacate in &plan.vacates {
            if let Some(allocation) = self.snapshot.allocations.get_mut(&vacate.allocation) {
                let before = allocation.leaving;
                allocation.leaving = true;
                allocation.purged |= vacate.purge;
                if !before {
                    self.ordered_at
                        .insert(vacate.allocation.clone(), self.cycle);
                }
            }
        }
        for grant in &plan.grants {
            self.born += 1;
            let Ok(id) = AllocationId::new(format!("s{:09}", self.born)) else {
                continue;
            };
            self.placed.insert(id.clone(), self.cycle);
            let held = grant.to_allocation(self.snapshot.now);
            self.snapshot.allocations.insert(id, held);
        }
        let refused = plan.verdicts.iter().filter(|(_, verdict)| verdict.refused);
        self.refused = refused.map(|(work, _)| work.clone()).collect();
    }

    /// These allocations of a node end at once.
    pub fn lose(&mut self, node: &NodeName, leaves: impl Fn(&Allocation) -> bool) {
        for (id, allocation) in &mut self.snapshot.allocations {
            if allocation.node == *node && !allocation.leaving && leaves(allocation) {
                allocation.leaving = true;
                allocation.purged = true;
                self.ordered_at.insert(id.clone(), self.cycle);
            }
        }
    }

    /// Counts shares by the current class after a reconfiguration.
    pub fn recount_shares(&mut self) {
        let mut allocations = std::mem::take(&mut self.snapshot.allocations);
        for allocation in allocations.values_mut() {
            let Some(demand) = self.snapshot.demand.get(&allocation.work) else {
                continue;
            };
            let class = demand.class.as_ref();
            let Some(class) = class.and_then(|name| self.snapshot.classes.get(name)) else {
                continue;
            };
            if class.policy == Policy::FairShare && allocation.kind != WorkKind::Job {
                // The class no longer serves this work.
                continue;
            }
            let quantum = quantum_of(&self.snapshot, &class.pool);
            allocation.fixed = class.policy != Policy::FairShare;
            if class.policy == Policy::Reserve {
                if let Some(node) = self.snapshot.nodes.get(&allocation.node) {
                    // The order of the node, in whichever pool the class is now.
                    let quantum = quantum_of(&self.snapshot, &node.pool);
                    allocation.quanta = quantum.node_order(&node.capacity);
                }
            } else {
                allocation.quanta = quantum.work_order(&demand.size);
                allocation.size = quantum.granted(&demand.size);
            }
        }
        self.snapshot.allocations = allocations;
        self.snapshot.carried.needy = Arc::default();
        self.snapshot.carried.promised_quanta.clear();
    }
}

/// The quantum of the tree of a pool.
pub fn quantum_of<'a>(snapshot: &'a Snapshot, pool: &str) -> &'a Quantum {
    let mut at = snapshot.pools.get(pool);
    while let Some(parent) = at.and_then(|pool| pool.parent.as_ref()) {
        at = snapshot.pools.get(parent);
    }
    at.and_then(|top| top.quantum.as_ref())
        .unwrap_or(&snapshot.quantum)
}
