//! Reads a snapshot: nodes, queues, applications and work items of one pool.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Reason,
    largest::{LargestNodes, order_of},
    snapshot::{
        Demand, Snapshot,
        queues::{Amounts, Queued, Queues},
    },
};
use hayward_vocabulary::{Quantum, Size, Timestamp, WorkId, WorkKind};

use super::{App, QuotaReservations, RoundState, WorkItem};
use crate::{
    limits::{Gates, LimitSubject, group_of},
    nodes::{Nodes, Shape},
    placement::{Refusal, Rules, Submitter, apply_tags},
    resource_vec::{ResourceTypes, Sparse, Vector, add},
    tree::{ROOT, Tagged, Tree},
};

/// A piece of work of this pool.
#[derive(Clone, Copy)]
struct PoolWork<'a> {
    work: &'a WorkId,
    demand: &'a Demand,
    queued: &'a Queued,
}

impl<'a> RoundState<'a> {
    pub fn open(snapshot: &'a Snapshot, pool: &'a str, queues: &'a Queues) -> Self {
        let pool_work = pool_work(snapshot, pool);
        let named = snapshot
            .pools
            .get(pool)
            .and_then(|pool| pool.quantum.as_ref());
        let quantum = named.unwrap_or(&snapshot.quantum);
        let members = members(snapshot, pool);
        let dims = dims(snapshot, quantum, &members, &pool_work);
        let mut whole = dims.zero();
        let mut nodes = Nodes::new(queues.node_sort, &dims.sparse(&weights(queues)));
        let there = snapshot.nodes.iter();
        let there = there.filter(|(_, node)| members.contains(node.pool.as_str()));
        let capacities = there.clone().map(|(_, node)| &node.capacity);
        let largest = LargestNodes::of(quantum, capacities);
        for (name, node) in there {
            let order = quantum.node_order(&node.capacity);
            nodes.add(&dims, name, node, order);
            add(&mut whole, &dims.vector(order, &node.capacity));
        }
        let mut round = Self {
            snapshot,
            queues,
            quantum,
            tree: Tree::new(&dims, &queues.root),
            dims,
            nodes,
            gates: Gates::default(),
            shapes: Vec::new(),
            apps: Vec::new(),
            items: Vec::new(),
            item_of: BTreeMap::new(),
            held: Vec::new(),
            whole,
            denominators: Vec::new(),
            apart: BTreeMap::new(),
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
            aside: Vec::new(),
        };
        round.list(&pool_work, &largest);
        round.read_allocations();
        round.settle_queues();
        round.charge_allocations();
        round
    }

    /// Builds applications and their work items.
    fn list(&mut self, pool_work: &[PoolWork<'a>], largest: &LargestNodes) {
        let mut apps: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut shapes: BTreeMap<&Size, usize> = BTreeMap::new();
        for it in pool_work {
            let PoolWork {
                work,
                demand,
                queued,
            } = *it;
            let name = queued.application.as_deref().unwrap_or(work.as_str());
            let user = demand.user.as_str();
            let app = *apps.entry((name, user)).or_insert_with(|| {
                self.apps.push(App::new(name, it, self.dims.zero()));
                self.apps.len() - 1
            });
            let shape = *shapes.entry(&demand.size).or_insert_with(|| {
                let order = order_of(self.quantum, &demand.size, [largest]);
                let size = self.quantum.granted_at(order, &demand.size);
                let vector = self.dims.vector(order, &size);
                self.shapes.push(Shape::new(order, size, vector));
                self.shapes.len() - 1
            });
            let entry = &mut self.apps[app];
            if demand.submitted_at < entry.submitted {
                entry.submitted = demand.submitted_at;
                entry.groups = &queued.groups;
            }
            entry.items.push(self.items.len());
            self.item_of.insert(work, self.items.len());
            self.items.push(WorkItem {
                work,
                demand,
                queued,
                app,
                shape,
                has: 0,
                leaving: 0,
                wanted: 0,
                placed: 0,
                waits_since: demand.submitted_at,
                anywhere: queued.required_node.is_none()
                    && demand.machines.is_empty()
                    && demand.avoids.is_empty()
                    && demand.apart.is_none(),
                why: None,
            });
        }
        self.sort_items();
    }

    fn sort_items(&mut self) {
        let items = &self.items;
        for app in &mut self.apps {
            app.items.sort_by_key(|at| {
                let item = &items[*at];
                let priority = std::cmp::Reverse(item.queued.priority);
                (priority, item.demand.submitted_at, item.work)
            });
        }
    }

    /// Assigns a queue to each application: the queue of its allocations, else by the placement
    /// rules.
    fn settle_queues(&mut self) {
        self.assign_queues_of_allocations();
        let new = self.place_new_applications();
        self.refuse_too_large(new);
        for app in &mut self.apps {
            if let Ok(queue) = app.queue {
                app.group = group_of(&self.tree, queue, app.group, app.groups);
                let subject = LimitSubject {
                    user: app.user,
                    group: app.group,
                };
                app.gates = self
                    .gates
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
        let all = 0..self.tree.entries.len();
        self.denominators = all.map(|queue| self.denominator(queue)).collect();
    }

    fn assign_queues_of_allocations(&mut self) {
        for held in &self.held {
            let queue = self.tree.grow(&self.dims, &held.allocation.class);
            if let (Some(queue), Some(item)) = (queue, held.item)
                && self.tree.entries[queue].leaf
            {
                let app = &mut self.apps[self.items[item].app];
                app.queue = Ok(queue);
                app.running = true;
                app.group = app.group.or(held.allocation.group.as_deref());
            }
        }
    }

    /// Places applications without allocations by the rules, the oldest first. Returns them.
    fn place_new_applications(&mut self) -> Vec<usize> {
        let rules = Rules::new(self.queues);
        let mut tagged = Tagged::default();
        let mut new = Vec::new();
        let mut by_age: Vec<usize> = (0..self.apps.len()).collect();
        by_age.sort_by_key(|at| (self.apps[*at].submitted, *at));
        for at in by_age {
            let first = self.apps[at].items.first().map(|item| &self.items[*item]);
            let queued = first.map(|item| item.queued);
            let app = &mut self.apps[at];
            // Charging its allocations sets `running` again.
            if !std::mem::take(&mut app.running) {
                new.push(at);
                let submitter = Submitter {
                    user: app.user,
                    groups: app.groups,
                    queued,
                    submitted: app.submitted,
                };
                app.queue = rules.place(&mut self.tree, &self.dims, submitter);
            }
            if let (Ok(queue), Some(queued)) = (&app.queue, queued)
                && tagged.is_last(*queue, app.submitted)
            {
                apply_tags(&mut self.tree, &self.dims, *queue, queued);
            }
        }
        new
    }

    /// Returns the denominator of a queue's share: its guarantee, or else its maximum.
    fn denominator(&self, queue: usize) -> Sparse {
        let most = self.tree.fair_max(queue, &self.whole);
        let guaranteed = &self.tree.entries[queue].guaranteed;
        let pairs = guaranteed.iter().zip(most);
        pairs.map(|(own, most)| own.or(most)).collect()
    }

    pub fn wanted(demand: &Demand, has: u64) -> u64 {
        let single = demand.kind != WorkKind::Job;
        let most = if single {
            demand.max_processes.min(1)
        } else {
            let threads = u64::from(demand.threads.max(1));
            demand
                .max_processes
                .min(demand.remaining_tasks.div_ceil(threads))
        };
        if demand.completing || demand.keeps_what_it_holds {
            has
        } else {
            most
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
            gates: Vec::new(),
            failed: 0,
            aside: None,
        }
    }
}

/// Returns all work that is queued in this pool. The first pool with queues takes work that names
/// none.
fn pool_work<'a>(snapshot: &'a Snapshot, pool: &str) -> Vec<PoolWork<'a>> {
    let first = snapshot.queues.keys().next();
    let all = snapshot.demand.iter();
    let all = all.filter_map(|(work, demand)| {
        let queued = demand.queued.as_deref()?;
        let wanted = queued.pool.as_ref().or(first);
        (wanted.map(String::as_str) == Some(pool)).then_some(PoolWork {
            work,
            demand,
            queued,
        })
    });
    all.collect()
}

/// Returns the names of all pools of one tree.
fn members<'a>(snapshot: &'a Snapshot, top: &str) -> BTreeSet<&'a str> {
    let is_member = |pool: &&str| {
        let mut at = *pool;
        for _ in 0..snapshot.pools.len() {
            match snapshot.pools.get(at).and_then(|it| it.parent.as_deref()) {
                Some(above) if snapshot.pools.contains_key(above) => at = above,
                _ => break,
            }
        }
        at == top
    };
    let names = snapshot.pools.keys().map(String::as_str);
    names.filter(is_member).collect()
}

fn weights(queues: &Queues) -> Amounts {
    if queues.weights.is_empty() {
        let both = ["memory", "vcore"].map(|name| (name.to_owned(), 1));
        Amounts::from(both)
    } else {
        queues.weights.clone()
    }
}

/// Returns all resource types that a node offers, work needs, or a limit names.
fn dims(
    snapshot: &Snapshot,
    quantum: &Quantum,
    members: &BTreeSet<&str>,
    pool_work: &[PoolWork],
) -> ResourceTypes {
    let nodes = snapshot.nodes.values();
    let nodes = nodes.filter(|node| members.contains(node.pool.as_str()));
    let sizes = nodes.map(|node| &node.capacity);
    let sizes = sizes.chain(pool_work.iter().map(|it| &it.demand.size));
    let sizes = sizes.chain([&quantum.0]);
    let extras = sizes.flat_map(|size| size.extras.keys().map(String::as_str));
    ResourceTypes::new(&extras.collect())
}

/// Returns the start of the current wait of a work item.
pub(super) fn later(since: Timestamp, granted: Timestamp) -> Timestamp {
    since.max(granted)
}
