//! State of one round in one pool, written as decisions are made.
//!
//! Invariant: usage only grows while work is placed, so work that did not fit once does not fit
//! later in the round. A work item or application that is put aside stays aside. A gang that does
//! not fit is undone before anything else is placed.

mod gangs;
mod headroom;
mod held;
mod open;
mod oversized_gangs;

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{
    plan::{Grant, QuotaNumbers, Receipt, Vacate, VacateReason},
    snapshot::{
        Allocation, Demand, Snapshot,
        queues::{CarriedQueueState, Queued, Queues},
    },
};
use hayward_vocabulary::{AllocationId, NodeName, Quantum, Timestamp, WorkId};

use crate::{
    limits::Gates,
    nodes::{Nodes, Shape},
    placement::Refusal,
    resource_vec::{ResourceTypes, Sparse, Vector, add, take},
    tree::Tree,
};

pub(crate) use gangs::{GangNeeds, PartNeeds};
pub(crate) use headroom::QuotaReservations;

pub(crate) struct RoundState<'a> {
    pub snapshot: &'a Snapshot,
    pub queues: &'a Queues,
    pub quantum: &'a Quantum,
    pub dims: ResourceTypes,
    pub tree: Tree<'a>,
    pub nodes: Nodes<'a>,
    pub gates: Gates,
    pub shapes: Vec<Shape>,
    pub apps: Vec<App<'a>>,
    pub items: Vec<WorkItem<'a>>,
    pub item_of: BTreeMap<&'a WorkId, usize>,
    pub held: Vec<HeldAllocation<'a>>,
    /// Capacity of all nodes.
    pub whole: Vector,
    /// Denominator of a queue's share, by queue.
    pub denominators: Vec<Sparse>,
    /// Anti-affinity groups, each with its work and the nodes of that work.
    apart: BTreeMap<&'a WorkId, Vec<(&'a WorkId, &'a NodeName)>>,
    pub placed: Vec<Placed>,
    pub vacates: BTreeMap<AllocationId, Vacate>,
    pub receipts: Vec<Receipt>,
    /// State carried to the next round.
    pub carried: CarriedQueueState,
    pub quota_reservations: QuotaReservations,
    /// Work items that were put aside, in that order.
    pub aside: Vec<usize>,
}

pub(crate) struct App<'a> {
    pub name: &'a str,
    pub queue: Result<usize, Refusal>,
    pub user: &'a str,
    pub groups: &'a [String],
    /// Group of the user that provides the limits. `None` if there is none.
    pub group: Option<&'a str>,
    pub submitted: Timestamp,
    /// Work items of the application by priority, then age, then id.
    pub items: Vec<usize>,
    /// Position of the next item; all earlier ones are placed or aside.
    pub next: usize,
    pub used: Vector,
    pub running: bool,
    pub gates: Vec<usize>,
    /// Work items that found no node in this round.
    pub failed: u64,
    pub aside: Option<Why>,
}

pub(crate) struct WorkItem<'a> {
    pub work: &'a WorkId,
    pub demand: &'a Demand,
    pub queued: &'a Queued,
    pub app: usize,
    pub shape: usize,
    pub has: u64,
    pub leaving: u64,
    pub wanted: u64,
    pub placed: u64,
    pub waits_since: Timestamp,
    /// True if the work may use any node.
    pub anywhere: bool,
    pub why: Option<Why>,
}

impl WorkItem<'_> {
    pub fn missing(&self) -> u64 {
        self.wanted.saturating_sub(self.has + self.placed)
    }

    /// Returns true for a part of a gang that starts with the others or not at all. A part without
    /// a least number is placed process by process.
    pub fn starts_whole(&self) -> bool {
        let gang = self.queued.gang.as_ref();
        gang.is_some_and(|gang| gang.min > 0)
    }

    /// Processes of the part that must still be placed together.
    pub fn gang_lacks(&self) -> u64 {
        let gang = self.queued.gang.as_ref();
        let least = gang.map_or(0, |gang| gang.min.min(self.wanted));
        least.saturating_sub(self.has + self.placed)
    }
}

/// Reason for putting a work item or application aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    BackingOff {
        until: Timestamp,
    },
    TooManyRun {
        queue: usize,
        owner: Option<String>,
        quota: QuotaNumbers,
        /// Part of the usage that is reserved for other work.
        reserved: u64,
    },
    UserQuota {
        gate: usize,
        dim: usize,
        quota: QuotaNumbers,
        /// Part of the usage that is reserved for other work.
        reserved: u64,
    },
    QueueQuota {
        queue: usize,
        dim: usize,
        quota: QuotaNumbers,
        /// Part of the usage that is reserved for other work.
        reserved: u64,
    },
    NoNode,
    /// Only some of the gang's processes fit.
    Gang {
        fit: u64,
        needed: u64,
        because: Option<Box<Why>>,
    },
}

/// An allocation in this pool.
pub(crate) struct HeldAllocation<'a> {
    pub id: &'a AllocationId,
    pub allocation: &'a Allocation,
    pub node: Option<usize>,
    pub item: Option<usize>,
    /// Index of its queue. `None` if it is in no queue.
    pub queue: Option<usize>,
    pub vector: Vector,
    pub leaves: bool,
}

pub(crate) struct Placed {
    pub item: usize,
    pub node: usize,
    pub gpus: Vec<u64>,
}

impl RoundState<'_> {
    pub fn vector(&self, item: usize) -> &Vector {
        &self.shapes[self.items[item].shape].vector
    }

    pub fn queue_of(&self, item: usize) -> Option<usize> {
        let app = &self.apps[self.items[item].app];
        app.queue.as_ref().ok().copied()
    }

    /// Returns the next work item of the application that is neither placed nor aside.
    pub fn head(&mut self, app: usize) -> Option<usize> {
        let app = &mut self.apps[app];
        if app.aside.is_some() || app.queue.is_err() {
            return None;
        }
        while let Some(item) = app.items.get(app.next) {
            let it = &self.items[*item];
            if it.why.is_none() && it.missing() > 0 {
                return Some(*item);
            }
            app.next += 1;
        }
        None
    }

    /// Checks all limits and finds a node for one more process.
    pub fn find_placement(&mut self, item: usize) -> Result<usize, Why> {
        self.may_hold(item)?;
        self.find_node(item).ok_or(Why::NoNode)
    }

    /// Returns the best node with free space for one more process.
    fn find_node(&mut self, item: usize) -> Option<usize> {
        let mut shape = std::mem::replace(
            &mut self.shapes[self.items[item].shape],
            Shape::new(0, hayward_vocabulary::Size::default(), Vec::new()),
        );
        let found = if self.items[item].anywhere {
            self.nodes.first(&mut shape, |_| true)
        } else {
            let candidates = self.candidates(item);
            match candidates {
                None => self.nodes.first(&mut shape, |node| self.suits(item, node)),
                Some(few) => {
                    let fit = few.into_iter().filter(|node| {
                        let node_state = &self.nodes.node_states[*node];
                        let open = node_state.node.is_schedulable() && !node_state.reserved;
                        open && node_state.fits(&shape.vector) && self.suits(item, *node)
                    });
                    fit.min_by_key(|node| self.nodes.rank(*node))
                }
            }
        };
        let at = self.items[item].shape;
        self.shapes[at] = shape;
        found
    }

    /// Returns the nodes that the work names, or `None` if it may use any.
    pub fn candidates(&self, item: usize) -> Option<Vec<usize>> {
        let it = &self.items[item];
        if let Some(required) = &it.queued.required_node {
            return Some(self.nodes.find(required).into_iter().collect());
        }
        let machines = &it.demand.machines;
        let named = || machines.iter().filter_map(|name| self.nodes.find(name));
        (!machines.is_empty()).then(|| named().collect())
    }

    /// Checks all placement constraints except free space.
    pub fn suits(&self, item: usize, node: usize) -> bool {
        let it = &self.items[item];
        let node_state = &self.nodes.node_states[node];
        let required = it.queued.required_node.as_ref();
        let listed = it.demand.machines.is_empty() || it.demand.machines.contains(node_state.name);
        required.is_none_or(|name| name == node_state.name)
            && listed
            && !it.demand.avoids.contains(node_state.name)
            && self.is_apart(item, node)
    }

    pub fn is_apart(&self, item: usize, node: usize) -> bool {
        self.is_apart_from(item, node, &[])
    }

    /// Checks anti-affinity as if the processes in `more` were placed. Its entries are pairs of
    /// item and node.
    pub fn is_apart_from(&self, item: usize, node: usize, more: &[(usize, usize)]) -> bool {
        let it = &self.items[item];
        let Some(apart) = &it.demand.apart else {
            return true;
        };
        let label = apart.by_label.as_ref();
        let value = |name: &NodeName| self.snapshot.nodes.get(name)?.labels.get(label?);
        let name = self.nodes.node_states[node].name;
        let here = value(name);
        let more = more.iter().filter_map(|(other, at)| {
            let other = &self.items[*other];
            let its = other.demand.apart.as_ref()?;
            (its.group == apart.group).then_some((other.work, self.nodes.node_states[*at].name))
        });
        let others = self.apart.get(&apart.group).into_iter().flatten();
        let others = others.copied().chain(more);
        let mut others = others.filter(|(work, _)| *work != it.work);
        (label.is_none() || here.is_some())
            && others.all(|(_, at)| at != name && (label.is_none() || value(at) != here))
    }

    /// Records for anti-affinity that the item is placed on the node.
    pub fn keep_apart(&mut self, item: usize, node: usize) {
        let it = &self.items[item];
        if let Some(apart) = &it.demand.apart {
            let name = self.nodes.node_states[node].name;
            self.apart
                .entry(&apart.group)
                .or_default()
                .push((it.work, name));
        }
    }

    pub fn place(&mut self, item: usize, node: usize) {
        let shape = &self.shapes[self.items[item].shape];
        let gpus = self.nodes.node_states[node].choose_gpus(shape.size.gpu_milli);
        self.nodes.hold(node, &shape.vector, &gpus);
        let vector = shape.vector.clone();
        self.charge(self.items[item].app, &vector);
        let it = &mut self.items[item];
        it.placed += 1;
        let missing = it.missing();
        self.keep_apart(item, node);
        self.placed.push(Placed { item, node, gpus });
        let surplus = self.reserved_processes(item).saturating_sub(missing);
        self.release_quota(item, surplus);
    }

    /// Charges the usage of an application.
    fn charge(&mut self, app: usize, vector: &[u64]) {
        let starts = !self.apps[app].running;
        let app = &mut self.apps[app];
        app.running = true;
        add(&mut app.used, vector);
        for gate in &app.gates {
            let gate = &mut self.gates.gates[*gate];
            add(&mut gate.used, vector);
            gate.running += u64::from(starts);
        }
        let mut at = app.queue.as_ref().ok().copied();
        while let Some(queue) = at {
            let queue_state = &mut self.tree.entries[queue];
            add(&mut queue_state.used, vector);
            queue_state.running += u64::from(starts);
            at = queue_state.parent;
        }
    }

    /// Undoes all placements after the first `keep`. An application counts as not started if its
    /// first placement is undone.
    pub fn undo(&mut self, keep: usize, started: bool) {
        for Placed { item, node, gpus } in self.placed.split_off(keep).into_iter().rev() {
            let vector = self.vector(item).clone();
            self.nodes.undo(node, &vector, &gpus);
            let it = &mut self.items[item];
            it.placed -= 1;
            if let Some(apart) = &it.demand.apart {
                self.apart.entry(&apart.group).or_default().pop();
            }
            let app = &mut self.apps[it.app];
            take(&mut app.used, &vector);
            for gate in &app.gates {
                take(&mut self.gates.gates[*gate].used, &vector);
            }
            let first = started && std::mem::take(&mut app.running);
            for gate in app.gates.iter().filter(|_| first) {
                self.gates.gates[*gate].running -= 1;
            }
            let mut at = app.queue.as_ref().ok().copied();
            while let Some(queue) = at {
                let queue_state = &mut self.tree.entries[queue];
                take(&mut queue_state.used, &vector);
                queue_state.running -= u64::from(first);
                at = queue_state.parent;
            }
        }
    }

    /// Vacates an allocation.
    pub fn vacate(&mut self, held: usize, reason: VacateReason, detail: String) {
        let it = &mut self.held[held];
        let node = self.snapshot.nodes.get(&it.allocation.node);
        let purge = node.is_none_or(|node| node.lost);
        let vacate = Vacate {
            allocation: it.id.clone(),
            reason,
            detail,
            purge,
        };
        self.vacates.insert(it.id.clone(), vacate);
        self.mark_leaving(held);
    }

    /// Marks an allocation that no longer serves its work, and whose space is not free yet.
    fn mark_leaving(&mut self, held: usize) {
        let it = &mut self.held[held];
        if std::mem::replace(&mut it.leaves, true) {
            return;
        }
        if let Some(item) = it.item {
            self.items[item].has -= 1;
            self.items[item].leaving += 1;
        }
        if let Some(node) = it.node {
            add(&mut self.nodes.node_states[node].going, &it.vector);
        }
        let mut at = it.queue;
        while let Some(queue) = at {
            add(&mut self.tree.entries[queue].going, &it.vector);
            at = self.tree.entries[queue].parent;
        }
    }

    pub fn grants(&self) -> Vec<Grant> {
        let grants = self.placed.iter().map(|placed| {
            let item = &self.items[placed.item];
            let shape = &self.shapes[item.shape];
            let queue = self.queue_of(placed.item);
            Grant {
                work: item.work.clone(),
                kind: item.demand.kind,
                user: item.demand.user.clone(),
                class: queue.map_or("", |at| &self.tree.entries[at].path).into(),
                node: self.nodes.node_states[placed.node].name.clone(),
                order: shape.order,
                size: shape.size.clone(),
                fixed: false,
                gpus: placed.gpus.clone(),
                group: self.apps[item.app].group.map(str::to_owned),
            }
        });
        grants.collect()
    }
}

fn numbers(max: &Sparse, used: &[u64], needed: &[u64], dim: usize) -> QuotaNumbers {
    QuotaNumbers {
        limit: max[dim].unwrap_or(u64::MAX),
        used: used[dim],
        needed: needed[dim],
    }
}
