//! State of one round in one pool, written as decisions are made.
//!
//! Invariant: usage only grows while work is placed, so work that did not fit once does not fit
//! later in the round. A skipped work item or application stays skipped. A gang that does not fit
//! is undone before anything else is placed.

mod allocations;
mod gang_refusals;
mod gangs;
mod headroom;
mod read_snapshot;

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
    nodes::{Nodes, Shape},
    owner_limits::OwnerLimits,
    placement_rules::Refusal,
    queue_tree::Tree,
    resource_vec::{LimitVector, ResourceTypes, Vector, add, subtract},
};

pub(crate) use gangs::{GangNeeds, PartNeeds};
pub(crate) use headroom::QuotaReservations;

/// State of one round in one pool. Queues, nodes, applications, work items, allocations and limits
/// refer to each other by their index.
pub(crate) struct RoundState<'a> {
    pub snapshot: &'a Snapshot,
    pub queues: &'a Queues,
    pub quantum: &'a Quantum,
    /// Resource types of the pool. A position in a vector is called `dim`.
    pub dims: ResourceTypes,
    pub tree: Tree<'a>,
    pub nodes: Nodes<'a>,
    pub owner_limits: OwnerLimits,
    /// Distinct sizes of the work items.
    pub shapes: Vec<Shape>,
    pub apps: Vec<App<'a>>,
    pub items: Vec<WorkItem<'a>>,
    pub item_by_work: BTreeMap<&'a WorkId, usize>,
    pub allocation_states: Vec<AllocationState<'a>>,
    /// Capacity of all nodes.
    pub total_capacity: Vector,
    /// Denominator of a queue's share, by queue.
    pub denominators: Vec<LimitVector>,
    /// Anti-affinity groups, each with its work and the nodes of that work.
    anti_affinity_groups: BTreeMap<&'a WorkId, Vec<(&'a WorkId, &'a NodeName)>>,
    /// Processes that the plan starts.
    pub placed: Vec<Placed>,
    pub vacates: BTreeMap<AllocationId, Vacate>,
    pub receipts: Vec<Receipt>,
    /// State carried to the next round.
    pub carried: CarriedQueueState,
    pub quota_reservations: QuotaReservations,
    /// Work items that were skipped, in that order.
    pub skipped: Vec<usize>,
}

/// An application: the work items of one user with the same application name.
pub(crate) struct App<'a> {
    pub name: &'a str,
    /// Index of the queue, or the reason why the application has none.
    pub queue: Result<usize, Refusal>,
    pub user: &'a str,
    pub groups: &'a [String],
    /// Group of the user that provides the limits. `None` if there is none.
    pub group: Option<&'a str>,
    pub submitted: Timestamp,
    /// Work items of the application by priority, then age, then id.
    pub items: Vec<usize>,
    /// Position of the next item; all earlier ones are placed or skipped.
    pub next: usize,
    pub used: Vector,
    /// True if the application has allocations or placements.
    pub running: bool,
    /// Indices of the limits of its user and group.
    pub owner_limits: Vec<usize>,
    /// Number of work items that found no node in this round.
    pub failed_placements: u64,
    pub wait_reason: Option<WaitReason>,
}

/// A piece of work with its processes in this round.
pub(crate) struct WorkItem<'a> {
    pub work: &'a WorkId,
    pub demand: &'a Demand,
    pub queued: &'a Queued,
    pub app: usize,
    pub shape: usize,
    /// Number of allocations that stay.
    pub current: u64,
    /// Number of allocations that leave.
    pub leaving: u64,
    /// Number of processes that the work can use.
    pub wanted: u64,
    /// Number of processes that the plan starts.
    pub placed: u64,
    pub waits_since: Timestamp,
    /// True if the work may use any node.
    pub may_use_any_node: bool,
    pub wait_reason: Option<WaitReason>,
}

impl WorkItem<'_> {
    pub fn missing(&self) -> u64 {
        self.wanted.saturating_sub(self.current + self.placed)
    }

    /// Returns true for a part of a gang that starts with all other parts or not at all. A part
    /// without a minimum number is placed process by process.
    pub fn starts_with_gang(&self) -> bool {
        let gang = self.queued.gang.as_ref();
        gang.is_some_and(|gang| gang.min > 0)
    }

    /// Returns the number of processes of the part that must still be placed together.
    pub fn missing_gang_processes(&self) -> u64 {
        let gang = self.queued.gang.as_ref();
        let min_processes = gang.map_or(0, |gang| gang.min.min(self.wanted));
        min_processes.saturating_sub(self.current + self.placed)
    }
}

/// Reason why a work item or application was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The application is not tried after too many failed placements.
    BackingOff { until: Timestamp },
    /// The queue or the user has its maximum number of running applications.
    ApplicationLimit {
        queue: usize,
        owner: Option<String>,
        quota: QuotaNumbers,
        /// Part of the usage that is reserved for other work.
        reserved: u64,
    },
    /// A user or group has its maximum of a resource.
    UserQuota {
        owner_limit: usize,
        dim: usize,
        quota: QuotaNumbers,
        /// Part of the usage that is reserved for other work.
        reserved: u64,
    },
    /// A queue has its maximum of a resource.
    QueueQuota {
        queue: usize,
        dim: usize,
        quota: QuotaNumbers,
        /// Part of the usage that is reserved for other work.
        reserved: u64,
    },
    /// No node has space for one more process.
    NoNode,
    /// Only some of the missing processes of the gang fit.
    Gang {
        fitting: u64,
        needed: u64,
        /// Reason why one more process does not fit.
        cause: Option<Box<WaitReason>>,
    },
}

/// An allocation in this pool.
pub(crate) struct AllocationState<'a> {
    pub id: &'a AllocationId,
    pub allocation: &'a Allocation,
    pub node: Option<usize>,
    pub item: Option<usize>,
    /// Index of its queue. `None` if it is in no queue.
    pub queue: Option<usize>,
    pub vector: Vector,
    pub is_leaving: bool,
}

/// A process that the plan starts.
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

    /// Returns the next work item of the application that is neither placed nor skipped.
    pub fn next_item(&mut self, app: usize) -> Option<usize> {
        let app = &mut self.apps[app];
        if app.wait_reason.is_some() || app.queue.is_err() {
            return None;
        }
        while let Some(item) = app.items.get(app.next) {
            let work_item = &self.items[*item];
            if work_item.wait_reason.is_none() && work_item.missing() > 0 {
                return Some(*item);
            }
            app.next += 1;
        }
        None
    }

    /// Checks all limits and finds a node for one more process.
    pub fn find_placement(&mut self, item: usize) -> Result<usize, WaitReason> {
        self.may_hold(item)?;
        self.find_node(item).ok_or(WaitReason::NoNode)
    }

    /// Returns the best node with free space for one more process.
    fn find_node(&mut self, item: usize) -> Option<usize> {
        // The search updates the index of the shape and reads the round, so the shape is taken out
        // of the round meanwhile.
        let mut shape = std::mem::replace(
            &mut self.shapes[self.items[item].shape],
            Shape::new(0, hayward_vocabulary::Size::default(), Vec::new()),
        );
        let found = if self.items[item].may_use_any_node {
            self.nodes.find_first(&mut shape, |_| true)
        } else {
            let candidates = self.candidates(item);
            match candidates {
                None => self
                    .nodes
                    .find_first(&mut shape, |node| self.meets_constraints(item, node)),
                Some(candidates) => {
                    let fitting = candidates.into_iter().filter(|node| {
                        let node_state = &self.nodes.node_states[*node];
                        let is_open = node_state.node.is_schedulable() && !node_state.reserved;
                        is_open
                            && node_state.fits(&shape.vector)
                            && self.meets_constraints(item, *node)
                    });
                    fitting.min_by_key(|node| self.nodes.sort_key(*node))
                }
            }
        };
        let shape_index = self.items[item].shape;
        self.shapes[shape_index] = shape;
        found
    }

    /// Returns the nodes that the work names, or `None` if it may use any.
    pub fn candidates(&self, item: usize) -> Option<Vec<usize>> {
        let work_item = &self.items[item];
        if let Some(required) = &work_item.queued.required_node {
            return Some(self.nodes.find(required).into_iter().collect());
        }
        let node_list = &work_item.demand.node_list;
        let named_nodes = || node_list.iter().filter_map(|name| self.nodes.find(name));
        (!node_list.is_empty()).then(|| named_nodes().collect())
    }

    /// Checks all placement constraints except free space.
    pub fn meets_constraints(&self, item: usize, node: usize) -> bool {
        let work_item = &self.items[item];
        let node_state = &self.nodes.node_states[node];
        let required = work_item.queued.required_node.as_ref();
        let is_listed = work_item.demand.node_list.is_empty()
            || work_item.demand.node_list.contains(node_state.name);
        required.is_none_or(|name| name == node_state.name)
            && is_listed
            && !work_item.demand.avoids.contains(node_state.name)
            && self.satisfies_anti_affinity(item, node)
    }

    pub fn satisfies_anti_affinity(&self, item: usize, node: usize) -> bool {
        self.satisfies_anti_affinity_with(item, node, &[])
    }

    /// Checks anti-affinity as if the processes in `additional` were placed. Its entries are pairs
    /// of item and node.
    pub fn satisfies_anti_affinity_with(
        &self,
        item: usize,
        node: usize,
        additional: &[(usize, usize)],
    ) -> bool {
        let work_item = &self.items[item];
        let Some(anti_affinity) = &work_item.demand.anti_affinity else {
            return true;
        };
        let label = anti_affinity.by_label.as_ref();
        let label_value = |name: &NodeName| self.snapshot.nodes.get(name)?.labels.get(label?);
        let name = self.nodes.node_states[node].name;
        let own_value = label_value(name);
        let additional = additional.iter().filter_map(|(other, other_node)| {
            let other = &self.items[*other];
            let other_anti_affinity = other.demand.anti_affinity.as_ref()?;
            (other_anti_affinity.group == anti_affinity.group)
                .then_some((other.work, self.nodes.node_states[*other_node].name))
        });
        let others = self
            .anti_affinity_groups
            .get(&anti_affinity.group)
            .into_iter()
            .flatten();
        let others = others.copied().chain(additional);
        let mut others = others.filter(|(work, _)| *work != work_item.work);
        (label.is_none() || own_value.is_some())
            && others.all(|(_, node_name)| {
                node_name != name && (label.is_none() || label_value(node_name) != own_value)
            })
    }

    /// Records for anti-affinity that the item is placed on the node.
    pub fn record_anti_affinity(&mut self, item: usize, node: usize) {
        let work_item = &self.items[item];
        if let Some(anti_affinity) = &work_item.demand.anti_affinity {
            let name = self.nodes.node_states[node].name;
            self.anti_affinity_groups
                .entry(&anti_affinity.group)
                .or_default()
                .push((work_item.work, name));
        }
    }

    /// Places one process of the item on the node, and charges its usage.
    pub fn place(&mut self, item: usize, node: usize) {
        let shape = &self.shapes[self.items[item].shape];
        let gpus = self.nodes.node_states[node].choose_gpus(shape.size.gpu_milli);
        self.nodes.add_usage(node, &shape.vector, &gpus);
        let vector = shape.vector.clone();
        self.charge(self.items[item].app, &vector);
        let work_item = &mut self.items[item];
        work_item.placed += 1;
        let missing = work_item.missing();
        self.record_anti_affinity(item, node);
        self.placed.push(Placed { item, node, gpus });
        let surplus = self.reserved_processes(item).saturating_sub(missing);
        self.release_quota(item, surplus);
    }

    /// Charges the usage of an application.
    fn charge(&mut self, app: usize, vector: &[u64]) {
        let is_first = !self.apps[app].running;
        let app = &mut self.apps[app];
        app.running = true;
        add(&mut app.used, vector);
        for owner_limit in &app.owner_limits {
            let owner_limit = &mut self.owner_limits.entries[*owner_limit];
            add(&mut owner_limit.used, vector);
            owner_limit.running += u64::from(is_first);
        }
        let mut current = app.queue.as_ref().ok().copied();
        while let Some(queue) = current {
            let queue_state = &mut self.tree.entries[queue];
            add(&mut queue_state.used, vector);
            queue_state.running += u64::from(is_first);
            current = queue_state.parent;
        }
    }

    /// Undoes all placements after the first `placed_before`. `started_application` is true if
    /// these placements started the application, which then counts as not running again.
    pub fn undo(&mut self, placed_before: usize, started_application: bool) {
        for Placed { item, node, gpus } in self.placed.split_off(placed_before).into_iter().rev() {
            let vector = self.vector(item).clone();
            self.nodes.remove_usage(node, &vector, &gpus);
            let work_item = &mut self.items[item];
            work_item.placed -= 1;
            if let Some(anti_affinity) = &work_item.demand.anti_affinity {
                self.anti_affinity_groups
                    .entry(&anti_affinity.group)
                    .or_default()
                    .pop();
            }
            let app = &mut self.apps[work_item.app];
            subtract(&mut app.used, &vector);
            for owner_limit in &app.owner_limits {
                subtract(&mut self.owner_limits.entries[*owner_limit].used, &vector);
            }
            let stops_running = started_application && std::mem::take(&mut app.running);
            for owner_limit in app.owner_limits.iter().filter(|_| stops_running) {
                self.owner_limits.entries[*owner_limit].running -= 1;
            }
            let mut current = app.queue.as_ref().ok().copied();
            while let Some(queue) = current {
                let queue_state = &mut self.tree.entries[queue];
                subtract(&mut queue_state.used, &vector);
                queue_state.running -= u64::from(stops_running);
                current = queue_state.parent;
            }
        }
    }

    /// Vacates an allocation.
    pub fn vacate(&mut self, index: usize, reason: VacateReason, detail: String) {
        let allocation_state = &mut self.allocation_states[index];
        let node = self.snapshot.nodes.get(&allocation_state.allocation.node);
        let purge = node.is_none_or(|node| node.lost);
        let vacate = Vacate {
            allocation: allocation_state.id.clone(),
            reason,
            detail,
            purge,
        };
        self.vacates.insert(allocation_state.id.clone(), vacate);
        self.mark_leaving(index);
    }

    /// Marks an allocation that no longer serves its work, and whose space is not free yet.
    fn mark_leaving(&mut self, index: usize) {
        let allocation_state = &mut self.allocation_states[index];
        if std::mem::replace(&mut allocation_state.is_leaving, true) {
            return;
        }
        if let Some(item) = allocation_state.item {
            self.items[item].current -= 1;
            self.items[item].leaving += 1;
        }
        if let Some(node) = allocation_state.node {
            add(
                &mut self.nodes.node_states[node].leaving,
                &allocation_state.vector,
            );
        }
        let mut current = allocation_state.queue;
        while let Some(queue) = current {
            add(
                &mut self.tree.entries[queue].leaving,
                &allocation_state.vector,
            );
            current = self.tree.entries[queue].parent;
        }
    }

    /// Returns the grants of all placed processes.
    pub fn grants(&self) -> Vec<Grant> {
        let grants = self.placed.iter().map(|placed| {
            let item = &self.items[placed.item];
            let shape = &self.shapes[item.shape];
            let queue = self.queue_of(placed.item);
            Grant {
                work: item.work.clone(),
                kind: item.demand.kind,
                user: item.demand.user.clone(),
                class: queue
                    .map_or("", |queue| &self.tree.entries[queue].path)
                    .into(),
                node: self.nodes.node_states[placed.node].name.clone(),
                quanta: shape.quanta,
                size: shape.size.clone(),
                fixed: false,
                gpus: placed.gpus.clone(),
                group: self.apps[item.app].group.map(str::to_owned),
            }
        });
        grants.collect()
    }
}

fn quota_numbers(max: &LimitVector, used: &[u64], needed: &[u64], dim: usize) -> QuotaNumbers {
    QuotaNumbers {
        limit: max[dim].unwrap_or(u64::MAX),
        used: used[dim],
        needed: needed[dim],
    }
}
