//! The simulated fleet of a scenario. It applies events and plans. Granted processes start, and
//! vacated processes end, after a number of rounds that the document sets.
//!
//! The scenario document calls a round a *cycle*.

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

pub struct SimulatedFleet {
    pub snapshot: Snapshot,
    pub simulation: Simulation,
    pub defaults: Defaults,
    pub policy: PolicyParts,
    /// Memory that each node reported, in bytes, including the part that is never allocated.
    pub reported_bytes: BTreeMap<NodeName, u64>,
    /// Predicted milliseconds of one task. `None` if unknown. The planner gets the value once a
    /// process of the work has run.
    pub task_ms: BTreeMap<WorkId, Option<u64>>,
    /// Work of an unknown kind, which is rejected before planning.
    pub unknown_kinds: BTreeSet<WorkId>,
    /// Number of the current round.
    pub round: u64,
    /// Round in which each process was placed.
    placed_in_round: BTreeMap<AllocationId, u64>,
    /// Round in which each process was vacated.
    pub vacated_in_round: BTreeMap<AllocationId, u64>,
    /// Work that was known at the end of the last round.
    known_work: BTreeSet<WorkId>,
    /// Preemptions of the last hour, for the preemption budget (B5).
    hourly_preemptions: HourlyPreemptions,
    /// Work that the last plan refused.
    refused_work: BTreeSet<WorkId>,
    last_allocation_number: u64,
}

impl SimulatedFleet {
    pub fn new(document: &Document) -> Result<Self, Error> {
        let mut snapshot = Snapshot::empty();
        snapshot.tunables = policy::ducc_tunables();
        let mut defaults = Defaults::default();
        policy::apply_settings(&document.settings, &mut snapshot, &mut defaults);
        let policy = PolicyParts {
            nodepools: document.nodepools.clone(),
            classes: document.classes.clone(),
        };
        policy.apply_to(&mut snapshot, Some(&document.users))?;
        Ok(Self {
            snapshot,
            simulation: document.simulation.clone(),
            defaults,
            policy,
            reported_bytes: BTreeMap::new(),
            task_ms: BTreeMap::new(),
            unknown_kinds: BTreeSet::new(),
            round: 0,
            placed_in_round: BTreeMap::new(),
            vacated_in_round: BTreeMap::new(),
            known_work: BTreeSet::new(),
            hourly_preemptions: HourlyPreemptions::default(),
            refused_work: BTreeSet::new(),
            last_allocation_number: 0,
        })
    }

    /// Applies the events of a round, plans the round and applies the plan.
    pub fn plan_round(&mut self, round: u64, events: &[Event]) -> Result<Plan, Error> {
        self.round = round;
        self.snapshot.round = round;
        let now = round.saturating_mul(self.simulation.cycle_ms.0);
        self.snapshot.now = Timestamp::from_unix_ms(i64::try_from(now).unwrap_or(i64::MAX));
        self.confirm_departures();
        self.remove_refused_work();
        for event in events {
            self.apply(event)?;
        }
        self.refresh_work();
        self.hourly_preemptions.expire_minutes(self.snapshot.now);
        self.snapshot.preempted_quanta = self.hourly_preemptions.preempted_quanta().clone();
        let plan = FairShare.schedule(&self.snapshot);
        self.hourly_preemptions
            .record_receipts(&self.snapshot, &plan.receipts);
        self.apply_plan(&plan);
        Ok(plan)
    }

    /// Ends a round after its outcome was determined.
    pub fn finish_round(&mut self, plan: Plan) {
        self.snapshot.carried = plan.carried;
        self.known_work = self.snapshot.demand.keys().cloned().collect();
    }

    /// Removes vacated processes after the release lag of the document.
    fn confirm_departures(&mut self) {
        let lag = self.simulation.release_lag_cycles;
        let (vacated_in_round, round) = (&mut self.vacated_in_round, self.round);
        let departed: Vec<AllocationId> = vacated_in_round
            .iter()
            .filter(|(_, vacated_in)| vacated_in.saturating_add(lag) <= round)
            .map(|(id, _)| id.clone())
            .collect();
        for id in departed {
            self.remove_allocation(&id);
        }
    }

    pub fn remove_allocation(&mut self, id: &AllocationId) {
        self.vacated_in_round.remove(id);
        self.placed_in_round.remove(id);
        self.snapshot.allocations.remove(id);
    }

    /// Removes the work that the last plan refused, as soon as it holds no process.
    fn remove_refused_work(&mut self) {
        self.unknown_kinds.clear();
        let holders: BTreeSet<WorkId> = self
            .snapshot
            .allocations
            .values()
            .map(|it| it.work.clone())
            .collect();
        let without_allocations: Vec<WorkId> =
            self.refused_work.difference(&holders).cloned().collect();
        for work in without_allocations {
            self.refused_work.remove(&work);
            self.snapshot.demand.remove(&work);
            self.task_ms.remove(&work);
        }
    }

    /// Updates the work that was submitted before this round: which processes run, since when, and
    /// what they have invested.
    fn refresh_work(&mut self) {
        for (id, allocation) in &mut self.snapshot.allocations {
            let placed_in = self.placed_in_round.get(id).copied().unwrap_or(self.round);
            let age = self.round.saturating_sub(placed_in);
            if !self.known_work.contains(&allocation.work) {
                continue;
            }
            let lag = self.simulation.init_lag_cycles;
            allocation.running = age >= lag;
            let granted_at = allocation.granted_at;
            allocation.running_since = allocation
                .running
                .then(|| granted_at.plus_ms(self.simulation.init_time_ms.0));
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
            let task_ms = self.task_ms.get(id).copied().flatten();
            demand.task_ms = task_ms.filter(|_| demand.runnable);
        }
    }

    fn apply_plan(&mut self, plan: &Plan) {
        for vacate in &plan.vacates {
            if let Some(allocation) = self.snapshot.allocations.get_mut(&vacate.allocation) {
                let was_leaving = allocation.leaving;
                allocation.leaving = true;
                allocation.purged |= vacate.purge;
                if !was_leaving {
                    self.vacated_in_round
                        .insert(vacate.allocation.clone(), self.round);
                }
            }
        }
        for grant in &plan.grants {
            self.last_allocation_number += 1;
            let Ok(id) = AllocationId::new(format!("s{:09}", self.last_allocation_number)) else {
                continue;
            };
            self.placed_in_round.insert(id.clone(), self.round);
            let allocation = grant.to_allocation(self.snapshot.now);
            self.snapshot.allocations.insert(id, allocation);
        }
        let refused = plan.verdicts.iter().filter(|(_, verdict)| verdict.refused);
        self.refused_work = refused.map(|(work, _)| work.clone()).collect();
    }

    /// Ends the selected allocations of a node at once.
    pub fn end_allocations(&mut self, node: &NodeName, is_selected: impl Fn(&Allocation) -> bool) {
        for (id, allocation) in &mut self.snapshot.allocations {
            if allocation.node == *node && !allocation.leaving && is_selected(allocation) {
                allocation.leaving = true;
                allocation.purged = true;
                self.vacated_in_round.insert(id.clone(), self.round);
            }
        }
    }

    /// Updates the quanta and the policy of allocations after the class of their work has changed
    ///
    pub fn update_allocations(&mut self) {
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
            let quantum = tree_quantum(&self.snapshot, &class.pool);
            allocation.fixed = class.policy != Policy::FairShare;
            if class.policy == Policy::Reserve {
                if let Some(node) = self.snapshot.nodes.get(&allocation.node) {
                    // A reservation holds all quanta of its node, whatever pool its class has now.
                    let quantum = tree_quantum(&self.snapshot, &node.pool);
                    allocation.quanta = quantum.quanta_of_node(&node.capacity);
                }
            } else {
                allocation.quanta = quantum.quanta_of_work(&demand.size);
                allocation.size = quantum.granted(&demand.size);
            }
        }
        self.snapshot.allocations = allocations;
        self.snapshot.carried.needy = Arc::default();
        self.snapshot.carried.reserved_node_quanta.clear();
    }
}

/// Returns the quantum of the tree of a pool.
pub fn tree_quantum<'a>(snapshot: &'a Snapshot, pool: &str) -> &'a Quantum {
    let mut ancestor = snapshot.pools.get(pool);
    while let Some(parent) = ancestor.and_then(|pool| pool.parent.as_ref()) {
        ancestor = snapshot.pools.get(parent);
    }
    ancestor
        .and_then(|root| root.quantum.as_ref())
        .unwrap_or(&snapshot.quantum)
}
