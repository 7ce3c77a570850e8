//! Reads a snapshot: nodes, queues, applications and work items of one pool.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Reason,
    largest_nodes::{LargestNodes, process_quanta},
    snapshot::{
        Demand, Snapshot,
        queues::{Amounts, Queued, Queues},
    },
};
use hayward_vocabulary::{Quantum, Size, Timestamp, WorkId, WorkKind};

use super::{App, QuotaReservations, RoundState, WorkItem};
use crate::{
    nodes::{Nodes, Shape},
    owner_limits::{LimitSubject, OwnerLimits, select_group},
    placement_rules::{LatestTags, Refusal, Rules, Submitter, apply_tags},
    queue_tree::{ROOT, Tree},
    resource_vec::{LimitVector, ResourceTypes, Vector, add},
};

/// A piece of work of this pool.
#[derive(Clone, Copy)]
struct PoolWork<'a> {
    work: &'a WorkId,
    demand: &'a Demand,
    queued: &'a Queued,
}

impl<'a> RoundState<'a> {
    /// Creates the state at the start of a round. Allocations that must leave in any case are
    /// already vacated.
    pub fn open(snapshot: &'a Snapshot, pool: &'a str, queues: &'a Queues) -> Self {
        let pool_work = find_pool_work(snapshot, pool);
        let pool_quantum = snapshot
            .pools
            .get(pool)
            .and_then(|pool| pool.quantum.as_ref());
        let quantum = pool_quantum.unwrap_or(&snapshot.quantum);
        let pool_names = pools_in_tree(snapshot, pool);
        let dims = resource_types(snapshot, quantum, &pool_names, &pool_work);
        let mut total_capacity = dims.zero();
        let mut nodes = Nodes::new(queues.node_sort, &dims.limit_vector(&node_weights(queues)));
        let pool_nodes = snapshot.nodes.iter();
        let pool_nodes = pool_nodes.filter(|(_, node)| pool_names.contains(node.pool.as_str()));
        let capacities = pool_nodes.clone().map(|(_, node)| &node.capacity);
        let largest = LargestNodes::from_capacities(quantum, capacities);
        for (name, node) in pool_nodes {
            let quanta = quantum.quanta_of_node(&node.capacity);
            nodes.add(&dims, name, node, quanta);
            add(&mut total_capacity, &dims.vector(quanta, &node.capacity));
        }
        let mut round = Self {
            snapshot,
            queues,
            quantum,
            tree: Tree::new(&dims, &queues.root),
            dims,
            nodes,
            owner_limits: OwnerLimits::default(),
            shapes: Vec::new(),
            apps: Vec::new(),
            items: Vec::new(),
            item_by_work: BTreeMap::new(),
            allocation_states: Vec::new(),
            total_capacity,
            denominators: Vec::new(),
            anti_affinity_groups: BTreeMap::new(),
            placed: Vec::new(),
            vacates: BTreeMap::new(),
            receipts: Vec::new(),
            carried: snapshot
                .carried
                .queues
                .get(pool)
                .cloned()
                .unwrap_or_default(),
            quota_reservations: QuotaReservations::default(),
            skipped: Vec::new(),
        };
        round.build_applications(&pool_work, &largest);
        round.read_allocations();
        round.assign_queues();
        round.charge_allocations();
        round
    }

    /// Builds applications and their work items.
    fn build_applications(&mut self, pool_work: &[PoolWork<'a>], largest: &LargestNodes) {
        let mut apps: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut shapes: BTreeMap<&Size, usize> = BTreeMap::new();
        for entry in pool_work {
            let PoolWork {
                work,
                demand,
                queued,
            } = *entry;
            let name = queued.application.as_deref().unwrap_or(work.as_str());
            let user = demand.user.as_str();
            let app = *apps.entry((name, user)).or_insert_with(|| {
                self.apps.push(App::new(name, entry, self.dims.zero()));
                self.apps.len() - 1
            });
            let shape = *shapes.entry(&demand.size).or_insert_with(|| {
                let quanta = process_quanta(self.quantum, &demand.size, [largest]);
                let size = self.quantum.granted_at(quanta, &demand.size);
                let vector = self.dims.vector(quanta, &size);
                self.shapes.push(Shape::new(quanta, size, vector));
                self.shapes.len() - 1
            });
            let app_state = &mut self.apps[app];
            if demand.submitted_at < app_state.submitted {
                app_state.submitted = demand.submitted_at;
                app_state.groups = &queued.groups;
            }
            app_state.items.push(self.items.len());
            self.item_by_work.insert(work, self.items.len());
            self.items.push(WorkItem {
                work,
                demand,
                queued,
                app,
                shape,
                current: 0,
                leaving: 0,
                wanted: 0,
                placed: 0,
                waits_since: demand.submitted_at,
                may_use_any_node: queued.required_node.is_none()
                    && demand.node_list.is_empty()
                    && demand.avoids.is_empty()
                    && demand.anti_affinity.is_none(),
                wait_reason: None,
            });
        }
        self.sort_items();
    }

    fn sort_items(&mut self) {
        let items = &self.items;
        for app in &mut self.apps {
            app.items.sort_by_key(|index| {
                let item = &items[*index];
                let priority = std::cmp::Reverse(item.queued.priority);
                (priority, item.demand.submitted_at, item.work)
            });
        }
    }

    /// Assigns a queue to each application: the queue of its allocations, else by the placement
    /// rules.
    fn assign_queues(&mut self) {
        self.assign_queues_of_allocations();
        let new_apps = self.place_new_applications();
        self.refuse_infeasible_applications(new_apps);
        for app in &mut self.apps {
            if let Ok(queue) = app.queue {
                app.group = select_group(&self.tree, queue, app.group, app.groups);
                let subject = LimitSubject {
                    user: app.user,
                    group: app.group,
                };
                app.owner_limits = self
                    .owner_limits
                    .for_subject(&self.tree, &self.dims, queue, subject);
            }
        }
        for item in &self.items {
            if item.demand.kind == WorkKind::Reservation {
                let detail = "a queue reserves no whole nodes; use a RESERVE class";
                self.apps[item.app].queue = Err(Refusal {
                    reason: Reason::PolicyMismatch,
                    detail: detail.to_owned(),
                });
            }
        }
        let queues = 0..self.tree.entries.len();
        self.denominators = queues.map(|queue| self.denominator(queue)).collect();
    }

    fn assign_queues_of_allocations(&mut self) {
        for allocation_state in &self.allocation_states {
            let queue = self
                .tree
                .find_or_create(&self.dims, &allocation_state.allocation.class);
            if let (Some(queue), Some(item)) = (queue, allocation_state.item)
                && self.tree.entries[queue].leaf
            {
                let app = &mut self.apps[self.items[item].app];
                app.queue = Ok(queue);
                app.running = true;
                app.group = app.group.or(allocation_state.allocation.group.as_deref());
            }
        }
    }

    /// Places applications without allocations by the rules, the oldest first. Returns them.
    fn place_new_applications(&mut self) -> Vec<usize> {
        let rules = Rules::new(self.queues);
        let mut latest_tags = LatestTags::default();
        let mut new_apps = Vec::new();
        let mut by_age: Vec<usize> = (0..self.apps.len()).collect();
        by_age.sort_by_key(|index| (self.apps[*index].submitted, *index));
        for index in by_age {
            let first = self.apps[index]
                .items
                .first()
                .map(|item| &self.items[*item]);
            let queued = first.map(|item| item.queued);
            let app = &mut self.apps[index];
            // `charge_allocations` sets `running` again.
            if !std::mem::take(&mut app.running) {
                new_apps.push(index);
                let submitter = Submitter {
                    user: app.user,
                    groups: app.groups,
                    queued,
                    submitted: app.submitted,
                };
                app.queue = rules.place(&mut self.tree, &self.dims, submitter);
            }
            if let (Ok(queue), Some(queued)) = (&app.queue, queued)
                && latest_tags.insert_if_newer(*queue, app.submitted)
            {
                apply_tags(&mut self.tree, &self.dims, *queue, queued);
            }
        }
        new_apps
    }

    /// Returns the denominator of a queue's share: its guarantee, or else its maximum.
    fn denominator(&self, queue: usize) -> LimitVector {
        let max = self.tree.fair_max(queue, &self.total_capacity);
        let guaranteed = &self.tree.entries[queue].guaranteed;
        let amounts = guaranteed.iter().zip(max);
        amounts.map(|(guarantee, max)| guarantee.or(max)).collect()
    }

    /// Returns the number of processes that the work can use now. `current` is the number that it
    /// has.
    pub fn wanted(demand: &Demand, current: u64) -> u64 {
        let is_single = demand.kind != WorkKind::Job;
        let limit = if is_single {
            demand.max_processes.min(1)
        } else {
            let threads = u64::from(demand.threads.max(1));
            demand
                .max_processes
                .min(demand.remaining_tasks.div_ceil(threads))
        };
        if demand.completing || demand.keeps_what_it_holds {
            current
        } else {
            limit
        }
    }
}

impl<'a> App<'a> {
    /// Creates an application with this first piece of work.
    fn new(name: &'a str, first: &PoolWork<'a>, used: Vector) -> Self {
        Self {
            name,
            queue: Ok(ROOT),
            user: first.demand.user.as_str(),
            groups: &first.queued.groups,
            group: None,
            submitted: first.demand.submitted_at,
            items: Vec::new(),
            next: 0,
            used,
            running: false,
            owner_limits: Vec::new(),
            failed_placements: 0,
            wait_reason: None,
        }
    }
}

/// Returns all work that is queued in this pool. The first pool with queues takes work that names
/// none.
fn find_pool_work<'a>(snapshot: &'a Snapshot, pool: &str) -> Vec<PoolWork<'a>> {
    let first = snapshot.queues.keys().next();
    let entries = snapshot.demand.iter();
    let entries = entries.filter_map(|(work, demand)| {
        let queued = demand.queued.as_deref()?;
        let pool_name = queued.pool.as_ref().or(first);
        (pool_name.map(String::as_str) == Some(pool)).then_some(PoolWork {
            work,
            demand,
            queued,
        })
    });
    entries.collect()
}

/// Returns the names of all pools of the tree below `top`.
fn pools_in_tree<'a>(snapshot: &'a Snapshot, top: &str) -> BTreeSet<&'a str> {
    let is_member = |pool: &&str| {
        let mut current = *pool;
        for _ in 0..snapshot.pools.len() {
            match snapshot
                .pools
                .get(current)
                .and_then(|it| it.parent.as_deref())
            {
                Some(parent) if snapshot.pools.contains_key(parent) => current = parent,
                _ => break,
            }
        }
        current == top
    };
    let names = snapshot.pools.keys().map(String::as_str);
    names.filter(is_member).collect()
}

/// Returns the weight of each resource type in the score of a node.
fn node_weights(queues: &Queues) -> Amounts {
    if queues.weights.is_empty() {
        let defaults = ["memory", "vcore"].map(|name| (name.to_owned(), 1));
        Amounts::from(defaults)
    } else {
        queues.weights.clone()
    }
}

/// Returns all resource types that a node offers, work needs, or a limit names.
fn resource_types(
    snapshot: &Snapshot,
    quantum: &Quantum,
    pool_names: &BTreeSet<&str>,
    pool_work: &[PoolWork],
) -> ResourceTypes {
    let nodes = snapshot.nodes.values();
    let nodes = nodes.filter(|node| pool_names.contains(node.pool.as_str()));
    let sizes = nodes.map(|node| &node.capacity);
    let sizes = sizes.chain(pool_work.iter().map(|it| &it.demand.size));
    let sizes = sizes.chain([&quantum.0]);
    let extras = sizes.flat_map(|size| size.extras.keys().map(String::as_str));
    ResourceTypes::new(&extras.collect())
}

/// Returns the start of the current wait of a work item. Each grant starts a new wait for the next
/// process.
pub(super) fn wait_start(since: Timestamp, granted: Timestamp) -> Timestamp {
    since.max(granted)
}
