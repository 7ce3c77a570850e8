//! Nodes on trial (W6): the block is over, and until one allocation has shown that the node works,
//! it holds at most one new one at a time.
//!
//! The planner knows nothing of it. It is offered such a node with the room that is used and one
//! waiting process more, and with what is used while the one is there. What it grants beyond that,
//! because another process is smaller still, is dropped before it is committed.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::{Demand, Node, Policy};
use hayward_rm_scheduler_domain::{Plan, Snapshot};
use hayward_vocabulary::{NodeName, Quantum, Size, WorkId, WorkKind};

use crate::queries::node_contents::{is_divided, quantum};
use crate::working_set::Ledger;

/// Nodes on trial, as their items say, and which trial it is (`removal_no`).
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

    pub fn of(&self, node: &NodeName) -> Option<u64> {
        self.nodes.get(node).copied()
    }
}

/// What is held on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsedSpace {
    pub order: u64,
    pub size: Size,
}

/// The capacity a node on trial is offered with: what is used there, and where `next` says so, room
/// for that one process. Memory and cpu are cut: that no second process finds one of them is
/// enough.
pub fn capacity_on_trial(
    capacity: &Size,
    used: &UsedSpace,
    quantum: &Quantum,
    next: Option<&Size>,
) -> Size {
    let mut offered = used.clone();
    if let Some(next) = next {
        offered.order += quantum.work_order(next);
        offered.size.add(&quantum.granted(next));
    }
    // A node holds as many quanta as its smallest dimension does, and what is used may have left
    // parts of its own unused.
    let hold = |size: u64, unit: u64| size.max(offered.order.saturating_mul(unit));
    let memory = hold(offered.size.memory_bytes, quantum.0.memory_bytes);
    let cpu = hold(offered.size.cpu_milli, quantum.0.cpu_milli);
    Size {
        memory_bytes: memory.min(capacity.memory_bytes),
        cpu_milli: cpu.min(capacity.cpu_milli),
        ..capacity.clone()
    }
}

/// The smallest of those that fit, by memory, then cpu; ties are alike.
pub fn smallest<'a>(waiting: impl Iterator<Item = &'a Size>, room: &Size) -> Option<&'a Size> {
    waiting
        .filter(|size| size.fits(room))
        .min_by_key(|size| (size.memory_bytes, size.cpu_milli))
}

impl Ledger {
    /// The capacity of a node on trial, as it is offered now.
    pub(crate) fn offered_capacity(
        &self,
        name: &NodeName,
        node: &Node,
        snapshot: &Snapshot,
    ) -> Size {
        let mut used = UsedSpace::default();
        for held in self.allocations.on_node(name) {
            used.order += held.entry.order;
            used.size.add(&held.entry.size);
        }
        let on_trial = self.is_under_trial(name);
        let mut room = node.capacity.clone();
        room.take(&used.size);
        let quantum = quantum(snapshot, &node.pool);
        let next = || {
            let could = |it: &(&WorkId, &Demand)| could_start(snapshot, it.1, (name, node));
            let asks = || snapshot.demand.iter().filter(could);
            let due = asks().filter(|(work, _)| self.is_due_more(work));
            let wants = asks().filter(|(work, demand)| self.wants_more(work, demand));
            let size = |(_, demand): (&WorkId, &Demand)| quantum.granted(&demand.size);
            let due: Vec<Size> = due.map(size).collect();
            // Where nobody is due more, who could use more is offered it.
            smallest(due.iter(), &room).cloned().or_else(|| {
                let wants: Vec<Size> = wants.map(size).collect();
                smallest(wants.iter(), &room).cloned()
            })
        };
        let next = if on_trial { None } else { next() };
        capacity_on_trial(&node.capacity, &used, quantum, next.as_ref())
    }

    /// What this trial granted is there. What an earlier one did is no more on trial.
    fn is_under_trial(&self, node: &NodeName) -> bool {
        let trial = self.nodes_on_trial.of(node);
        trial.is_some()
            && self
                .allocations
                .on_node(node)
                .any(|held| held.trial == trial)
    }

    fn is_due_more(&self, work: &WorkId) -> bool {
        let verdict = self.planning.verdict(work);
        verdict.is_none_or(|verdict| verdict.waits && !verdict.refused)
    }

    fn wants_more(&self, work: &WorkId, demand: &Demand) -> bool {
        wanted(demand) > self.staying_processes(work)
    }

    /// Processes it has that were not told to leave.
    pub(crate) fn staying_processes(&self, work: &WorkId) -> u64 {
        let held = self.allocations.of_work(work);
        let stays = held.filter(|held| held.entry.holds() && held.entry.vacate.is_none());
        stays.count() as u64
    }

    /// What waits and what is held changes from round to round, and with it what is offered.
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

    /// One new allocation at a time. What is dropped is planned anew.
    pub(crate) fn limit_nodes_on_trial(&mut self, plan: &mut Plan) {
        if self.nodes_on_trial.nodes.is_empty() {
            return;
        }
        let nodes = self.nodes_on_trial.nodes.keys();
        let live = nodes.filter(|node| self.is_under_trial(node));
        let mut taken: BTreeSet<NodeName> = live.cloned().collect();
        let before = plan.grants.len();
        plan.grants.retain(|grant| {
            self.nodes_on_trial.of(&grant.node).is_none() || taken.insert(grant.node.clone())
        });
        self.timing.request_round_if(plan.grants.len() < before);
    }
}

/// Processes a piece of work could use, whatever it is due.
pub(crate) fn wanted(demand: &Demand) -> u64 {
    if demand.kind != WorkKind::Job {
        return demand.max_processes.min(1);
    }
    let tasks = demand
        .remaining_tasks
        .div_ceil(u64::from(demand.threads.max(1)));
    demand.max_processes.min(tasks)
}

/// By its lists and its class, as far as that is known before it is planned.
fn could_start(snapshot: &Snapshot, demand: &Demand, (name, node): (&NodeName, &Node)) -> bool {
    let listed = demand.machines.is_empty() || demand.machines.contains(name);
    let class = demand.class.as_ref();
    let reaches = class
        .and_then(|class| snapshot.classes.get(class))
        .is_none_or(|class| {
            let below = class.policy == Policy::FairShare;
            class.pool == node.pool || (below && is_below(snapshot, &node.pool, &class.pool))
        });
    let served = demand.queued.is_some() == is_divided(snapshot, &node.pool);
    served
        && listed
        && reaches
        && !demand.avoids.contains(name)
        && demand.kind != WorkKind::Reservation
}

fn is_below(snapshot: &Snapshot, pool: &str, above: &str) -> bool {
    let mut at = snapshot.pools.get(pool);
    for _ in 0..snapshot.pools.len() {
        match at.and_then(|pool| pool.parent.as_deref()) {
            Some(parent) if parent == above => return true,
            Some(parent) => at = snapshot.pools.get(parent),
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

    fn size((memory, cpu): (u64, u64)) -> Size {
        Size {
            cpu_milli: cpu * 100,
            ..Size::memory(memory * GIB)
        }
    }

    fn used(held: &[(u64, u64)], quantum: &Quantum) -> UsedSpace {
        let mut used = UsedSpace::default();
        for it in held {
            used.order += quantum.work_order(&size(*it));
            used.size.add(&quantum.granted(&size(*it)));
        }
        used
    }

    fn quanta() -> impl Strategy<Value = Quantum> {
        let cpu = prop_oneof![Just(0), Just(100), Just(300)];
        cpu.prop_map(|cpu_milli| {
            Quantum(Size {
                cpu_milli,
                ..Size::memory(GIB)
            })
        })
    }

    proptest! {
        /// What is used and one of the smallest that waits fit, and two of anything that waits do
        /// not; while one is there, nothing more does.
        #[test]
        fn one_more_fits_and_no_two(
            held in prop::collection::vec((1..5_u64, 0..9_u64), 0..4),
            waiting in prop::collection::vec((1..9_u64, 0..9_u64), 1..6),
            quantum in quanta(),
        ) {
            let capacity = size((64, 400));
            let used = used(&held, &quantum);
            let waiting: Vec<Size> =
                waiting.into_iter().map(|it| quantum.granted(&size(it))).collect();
            let mut room = capacity.clone();
            room.take(&used.size);
            let next = smallest(waiting.iter(), &room);
            prop_assert!(next.is_some(), "the node is large");
            let order = |size: &Size| quantum.work_order(size);
            for (next, most) in [(next, 1), (None, 0)] {
                let offered = capacity_on_trial(&capacity, &used, &quantum, next);
                prop_assert!(offered.fits(&capacity) && used.size.fits(&offered));
                let free = quantum.node_order(&offered) - used.order;
                if let Some(next) = next {
                    let mut with = used.size.clone();
                    with.add(next);
                    prop_assert!(order(next) <= free && with.fits(&offered));
                }
                let mut left = offered.clone();
                left.take(&used.size);
                for one in &waiting {
                    let mut both = one.clone();
                    let two = if most == 0 { one } else {
                        both.add(one);
                        &both
                    };
                    let quanta = order(one) * (most + 1);
                    prop_assert!(quanta > free || !two.fits(&left), "{one:?} in {left:?}");
                }
            }
        }

        #[test]
        fn nothing_is_offered_that_is_not_there(
            memory in 0..9_u64,
            held in prop::collection::vec((1..5_u64, 0..9_u64), 0..4),
            next in prop::option::of((1..9_u64, 0..9_u64)),
            quantum in quanta(),
        ) {
            let capacity = size((memory, memory));
            let next = next.map(size);
            let offered = capacity_on_trial(&capacity, &used(&held, &quantum), &quantum, next.as_ref());
            prop_assert!(offered.fits(&capacity));
        }
    }

    #[test]
    fn the_smallest_by_memory_that_fits() {
        let waiting = [size((4, 1)), size((2, 9)), size((2, 3)), size((1, 90))];
        let room = size((8, 10));
        assert_eq!(smallest(waiting.iter(), &room), Some(&waiting[2]));
        assert_eq!(smallest(waiting.iter(), &size((1, 1))), None);
    }
}
