//! Nodes on trial. The block of such a node has ended. Until an allocation has proven that the node
//! works, the node gets at most one new allocation at a time.
//!
//! The planner is not aware of trials. It sees the node with a smaller capacity: the used space
//! plus space for one waiting process. While an allocation of the trial is on the node, the
//! capacity is only the used space. The planner may grant several smaller processes in the space
//! for one. All but one of these grants are dropped before the commit (W6).

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::{Demand, Node, Policy};
use hayward_rm_scheduler_domain::{Plan, Snapshot};
use hayward_vocabulary::{NodeName, Quantum, Size, WorkId, WorkKind};

use crate::pool_tree::{has_queues, quantum_of_pool};
use crate::working_set::Ledger;

/// Nodes on trial, each with the number of its trial (`removal_no`).
#[derive(Debug, Default)]
pub(crate) struct NodesOnTrial {
    nodes: BTreeMap<NodeName, u64>,
}

impl NodesOnTrial {
    pub fn set(&mut self, node: &NodeName, trial: Option<u64>) {
        match trial {
            Some(number) => self.nodes.insert(node.clone(), number),
            None => self.nodes.remove(node),
        };
    }

    pub fn trial_of(&self, node: &NodeName) -> Option<u64> {
        self.nodes.get(node).copied()
    }
}

/// Space held on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsedSpace {
    pub quanta: u64,
    pub size: Size,
}

/// Returns the offered capacity of a node on trial: its used space, and space for `next`. Only
/// memory and CPU are limited, which is enough to exclude a second process.
pub fn capacity_on_trial(
    capacity: &Size,
    used: &UsedSpace,
    quantum: &Quantum,
    next: Option<&Size>,
) -> Size {
    let mut offered = used.clone();
    if let Some(next) = next {
        offered.quanta += quantum.quanta_of_work(next);
        offered.size.add(&quantum.granted(next));
    }
    // A node holds as many quanta as its scarcest dimension allows. The used quanta may be larger
    // than the sizes of their processes, so the sizes alone could be too small.
    let at_least_used = |size: u64, unit: u64| size.max(offered.quanta.saturating_mul(unit));
    let memory = at_least_used(offered.size.memory_bytes, quantum.0.memory_bytes);
    let cpu = at_least_used(offered.size.cpu_milli, quantum.0.cpu_milli);
    Size {
        memory_bytes: memory.min(capacity.memory_bytes),
        cpu_milli: cpu.min(capacity.cpu_milli),
        ..capacity.clone()
    }
}

/// Returns the smallest size that fits, by memory, then by CPU.
pub fn smallest_fitting<'a>(
    waiting: impl Iterator<Item = &'a Size>,
    free: &Size,
) -> Option<&'a Size> {
    waiting
        .filter(|size| size.fits(free))
        .min_by_key(|size| (size.memory_bytes, size.cpu_milli))
}

impl Ledger {
    /// Returns the capacity that a node on trial offers to the next round.
    pub(crate) fn offered_capacity(
        &self,
        name: &NodeName,
        node: &Node,
        snapshot: &Snapshot,
    ) -> Size {
        let mut used = UsedSpace::default();
        for record in self.allocations.on_node(name) {
            used.quanta += record.entry.order;
            used.size.add(&record.entry.size);
        }
        let has_trial_allocation = self.has_trial_allocation(name);
        let mut free = node.capacity.clone();
        free.subtract(&used.size);
        let quantum = quantum_of_pool(snapshot, &node.pool);
        let next = || {
            let may_start =
                |(_, demand): &(&WorkId, &Demand)| could_start(snapshot, demand, name, node);
            let candidates = || snapshot.demand.iter().filter(may_start);
            let entitled = candidates().filter(|(work, _)| self.is_entitled_to_more(work));
            let wanting = candidates().filter(|(work, demand)| self.wants_more(work, demand));
            let size = |(_, demand): (&WorkId, &Demand)| quantum.granted(&demand.size);
            let entitled: Vec<Size> = entitled.map(size).collect();
            // If no work is entitled to more processes, the space is for work that could use more.
            smallest_fitting(entitled.iter(), &free)
                .cloned()
                .or_else(|| {
                    let wanting: Vec<Size> = wanting.map(size).collect();
                    smallest_fitting(wanting.iter(), &free).cloned()
                })
        };
        let next = if has_trial_allocation { None } else { next() };
        capacity_on_trial(&node.capacity, &used, quantum, next.as_ref())
    }

    /// Returns true while an allocation of this trial holds space on the node. Earlier allocations
    /// do not count.
    fn has_trial_allocation(&self, node: &NodeName) -> bool {
        let trial = self.nodes_on_trial.trial_of(node);
        trial.is_some()
            && self
                .allocations
                .on_node(node)
                .any(|record| record.trial == trial)
    }

    /// Returns true if the work waits for a process that it is entitled to, or has no verdict yet.
    fn is_entitled_to_more(&self, work: &WorkId) -> bool {
        let verdict = self.planning.verdict(work);
        verdict.is_none_or(|verdict| verdict.waits && !verdict.refused)
    }

    fn wants_more(&self, work: &WorkId, demand: &Demand) -> bool {
        wanted_processes(demand) > self.staying_processes(work)
    }

    /// Counts the processes of this work without an order to leave.
    pub(crate) fn staying_processes(&self, work: &WorkId) -> u64 {
        let records = self.allocations.of_work(work);
        let staying =
            records.filter(|record| record.entry.holds() && record.entry.vacate.is_none());
        staying.count() as u64
    }

    /// Updates the capacity of nodes on trial, because waiting work and allocations change from
    /// round to round.
    pub(crate) fn refresh_nodes_on_trial(&mut self) {
        for node in self
            .nodes_on_trial
            .nodes
            .keys()
            .cloned()
            .collect::<Vec<_>>()
        {
            self.refresh_node(node.as_str());
        }
    }

    /// Drops all but one new allocation on each node on trial. Dropped grants are planned again.
    pub(crate) fn limit_nodes_on_trial(&mut self, plan: &mut Plan) {
        if self.nodes_on_trial.nodes.is_empty() {
            return;
        }
        let nodes = self.nodes_on_trial.nodes.keys();
        let occupied = nodes.filter(|node| self.has_trial_allocation(node));
        let mut nodes_in_use: BTreeSet<NodeName> = occupied.cloned().collect();
        let before = plan.grants.len();
        plan.grants.retain(|grant| {
            self.nodes_on_trial.trial_of(&grant.node).is_none()
                || nodes_in_use.insert(grant.node.clone())
        });
        self.timing.request_round_if(plan.grants.len() < before);
    }
}

/// Returns how many processes a piece of work could use, whatever its entitlement.
pub(crate) fn wanted_processes(demand: &Demand) -> u64 {
    if demand.kind != WorkKind::Job {
        return demand.max_processes.min(1);
    }
    let tasks = demand
        .remaining_tasks
        .div_ceil(u64::from(demand.threads.max(1)));
    demand.max_processes.min(tasks)
}

/// Returns true if the lists and the class of the work allow this node.
fn could_start(snapshot: &Snapshot, demand: &Demand, name: &NodeName, node: &Node) -> bool {
    let listed = demand.node_list.is_empty() || demand.node_list.contains(name);
    let class = demand.class.as_ref();
    let class_allows = class
        .and_then(|class| snapshot.classes.get(class))
        .is_none_or(|class| {
            let may_use_pools_below = class.policy == Policy::FairShare;
            class.pool == node.pool
                || (may_use_pools_below && is_below(snapshot, &node.pool, &class.pool))
        });
    let has_same_planner = demand.queued.is_some() == has_queues(snapshot, &node.pool);
    has_same_planner
        && listed
        && class_allows
        && !demand.avoids.contains(name)
        && demand.kind != WorkKind::Reservation
}

fn is_below(snapshot: &Snapshot, pool: &str, above: &str) -> bool {
    let mut current = snapshot.pools.get(pool);
    for _ in 0..snapshot.pools.len() {
        match current.and_then(|pool| pool.parent.as_deref()) {
            Some(parent) if parent == above => return true,
            Some(parent) => current = snapshot.pools.get(parent),
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::resources::GIB;
    use proptest::prelude::*;

    use super::*;

    /// Returns a size of GiB of memory and tenths of a CPU.
    fn size(memory: u64, cpu: u64) -> Size {
        Size {
            cpu_milli: cpu * 100,
            ..Size::memory(memory * GIB)
        }
    }

    fn used_space(processes: &[(u64, u64)], quantum: &Quantum) -> UsedSpace {
        let mut used = UsedSpace::default();
        for (memory, cpu) in processes {
            let size = size(*memory, *cpu);
            used.quanta += quantum.quanta_of_work(&size);
            used.size.add(&quantum.granted(&size));
        }
        used
    }

    fn any_quantum() -> impl Strategy<Value = Quantum> {
        let cpu = prop_oneof![Just(0), Just(100), Just(300)];
        cpu.prop_map(|cpu_milli| {
            Quantum(Size {
                cpu_milli,
                ..Size::memory(GIB)
            })
        })
    }

    proptest! {
        /// The smallest waiting process fits, and no two equal waiting processes do. While an
        /// allocation of the trial is on the node, no waiting process fits.
        #[test]
        fn one_waiting_process_fits_on_a_node_on_trial_and_two_do_not(
            processes in prop::collection::vec((1..5_u64, 0..9_u64), 0..4),
            waiting in prop::collection::vec((1..9_u64, 0..9_u64), 1..6),
            quantum in any_quantum(),
        ) {
            let capacity = size(64, 400);
            let used = used_space(&processes, &quantum);
            let granted = |(memory, cpu)| quantum.granted(&size(memory, cpu));
            let waiting: Vec<Size> = waiting.into_iter().map(granted).collect();
            let mut free = capacity.clone();
            free.subtract(&used.size);
            let next = smallest_fitting(waiting.iter(), &free);
            prop_assert!(next.is_some(), "the node is large");
            let quanta_of = |size: &Size| quantum.quanta_of_work(size);
            // With space for one more process, and without.
            for (next, max_new) in [(next, 1), (None, 0)] {
                let offered = capacity_on_trial(&capacity, &used, &quantum, next);
                prop_assert!(offered.fits(&capacity) && used.size.fits(&offered));
                let free_quanta = quantum.quanta_of_node(&offered) - used.quanta;
                if let Some(next) = next {
                    let mut with_next = used.size.clone();
                    with_next.add(next);
                    prop_assert!(quanta_of(next) <= free_quanta && with_next.fits(&offered));
                }
                let mut free_size = offered.clone();
                free_size.subtract(&used.size);
                for process in &waiting {
                    let mut too_much = process.clone();
                    if max_new == 1 {
                        too_much.add(process);
                    }
                    let quanta = quanta_of(process) * (max_new + 1);
                    let fits = quanta <= free_quanta && too_much.fits(&free_size);
                    prop_assert!(!fits, "{process:?} in {free_size:?}");
                }
            }
        }

        #[test]
        fn offered_capacity_never_exceeds_the_node(
            memory in 0..9_u64,
            processes in prop::collection::vec((1..5_u64, 0..9_u64), 0..4),
            next in prop::option::of((1..9_u64, 0..9_u64)),
            quantum in any_quantum(),
        ) {
            let capacity = size(memory, memory);
            let next = next.map(|(memory, cpu)| size(memory, cpu));
            let used = used_space(&processes, &quantum);
            let offered = capacity_on_trial(&capacity, &used, &quantum, next.as_ref());
            prop_assert!(offered.fits(&capacity));
        }
    }

    #[test]
    fn the_smallest_fitting_size_has_the_least_memory_that_fits() {
        let waiting = [size(4, 1), size(2, 9), size(2, 3), size(1, 90)];
        let free = size(8, 10);
        assert_eq!(smallest_fitting(waiting.iter(), &free), Some(&waiting[2]));
        assert_eq!(smallest_fitting(waiting.iter(), &size(1, 1)), None);
    }
}
