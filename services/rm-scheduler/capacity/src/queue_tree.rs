//! Queues of one pool by index, with their usage and waiting work.
//!
//! A queue that is not configured is created below an inner queue when an application is placed in
//! it, and exists only while an application uses it.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{Preemption, Queue, Sort, Template};

use crate::resource_vec::{LimitVector, ResourceTypes, Vector};

pub(crate) const ROOT: usize = 0;

/// A queue with its usage.
pub(crate) struct QueueState<'a> {
    pub path: String,
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// Configuration of the queue. `None` for a queue that an application created.
    pub config: Option<&'a Queue>,
    pub leaf: bool,
    pub draining: bool,
    pub max: LimitVector,
    pub guaranteed: LimitVector,
    pub max_applications: Option<u64>,
    pub settings: QueueSettings,
    pub priority_fence: bool,
    pub priority_offset: i32,
    pub preemption: Preemption,
    /// Usage, including allocations that leave.
    pub used: Vector,
    /// Part of the usage that leaves.
    pub leaving: Vector,
    /// Part of the remaining maximum that is reserved for some work.
    pub reserved: Vector,
    /// Number of applications with allocations.
    pub running: u64,
}

/// Settings inherited from the nearest ancestor that has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueSettings {
    pub sort: Sort,
    pub by_priority: bool,
    pub backoff_asks: u64,
    pub backoff_ms: u64,
    pub preemption_delay_ms: u64,
    pub quota_delay_ms: u64,
    /// True if the allocations of the queue are never preempted.
    pub preemption_disabled: bool,
}

pub(crate) const DEFAULT_SETTINGS: QueueSettings = QueueSettings {
    sort: Sort::Fifo,
    by_priority: true,
    backoff_asks: 0,
    backoff_ms: 30_000,
    preemption_delay_ms: 30_000,
    quota_delay_ms: 0,
    preemption_disabled: false,
};

impl QueueSettings {
    fn for_child(self, queue: &Queue) -> Self {
        Self {
            sort: queue.sort.unwrap_or(self.sort),
            by_priority: queue.sort_by_priority.unwrap_or(self.by_priority),
            backoff_asks: queue.backoff_asks.unwrap_or(self.backoff_asks),
            backoff_ms: queue.backoff_ms.unwrap_or(self.backoff_ms),
            preemption_delay_ms: queue
                .preemption_delay_ms
                .unwrap_or(self.preemption_delay_ms),
            quota_delay_ms: queue
                .quota_preemption_delay_ms
                .unwrap_or(self.quota_delay_ms),
            preemption_disabled: self.preemption_disabled
                || queue.preemption == Preemption::Disabled,
        }
    }
}

/// The tree of queues of one pool. The root has index [`ROOT`].
pub(crate) struct Tree<'a> {
    pub entries: Vec<QueueState<'a>>,
}

impl<'a> Tree<'a> {
    pub fn new(dims: &ResourceTypes, root: &'a Queue) -> Self {
        let mut tree = Self {
            entries: Vec::new(),
        };
        tree.add_configured(dims, "root", None, root);
        tree.entries[ROOT].leaf = false;
        // The maximum of the root is the capacity of its nodes.
        tree.entries[ROOT].max.fill(None);
        tree
    }

    fn add_configured(
        &mut self,
        dims: &ResourceTypes,
        name: &str,
        parent: Option<usize>,
        queue: &'a Queue,
    ) {
        let index = self.add(dims, name, parent);
        let inherited = parent.map_or(DEFAULT_SETTINGS, |parent| self.entries[parent].settings);
        let queue_state = &mut self.entries[index];
        queue_state.config = Some(queue);
        queue_state.leaf = queue.is_leaf();
        queue_state.draining = queue.draining;
        queue_state.max = dims.limit_vector(&queue.max);
        queue_state.guaranteed = dims.limit_vector(&queue.guaranteed);
        queue_state.max_applications = queue.max_applications.filter(|max| *max > 0);
        queue_state.settings = inherited.for_child(queue);
        queue_state.priority_fence = queue.priority_fence;
        queue_state.priority_offset = queue.priority_offset;
        queue_state.preemption = queue.preemption;
        for (name, child) in &queue.children {
            self.add_configured(dims, name, Some(index), child);
        }
    }

    fn add(&mut self, dims: &ResourceTypes, name: &str, parent: Option<usize>) -> usize {
        let index = self.entries.len();
        let mut path = String::new();
        let mut settings = DEFAULT_SETTINGS;
        if let Some(parent) = parent {
            let parent_state = &mut self.entries[parent];
            parent_state.children.insert(name.to_owned(), index);
            path = format!("{}.", parent_state.path);
            settings = parent_state.settings;
        }
        path.push_str(name);
        self.entries.push(QueueState {
            path,
            parent,
            children: BTreeMap::new(),
            config: None,
            leaf: true,
            draining: false,
            max: vec![None; dims.len()],
            guaranteed: vec![None; dims.len()],
            max_applications: None,
            settings,
            priority_fence: false,
            priority_offset: 0,
            preemption: Preemption::Default,
            used: dims.zero(),
            leaving: dims.zero(),
            reserved: dims.zero(),
            running: 0,
        });
        index
    }

    /// Returns the queue of this path, or else its nearest existing ancestor. The second value is
    /// true if the whole path exists.
    pub fn nearest(&self, path: &str) -> (usize, bool) {
        let mut names = path.split('.');
        if names.next() != Some("root") {
            return (ROOT, false);
        }
        let mut index = ROOT;
        for name in names {
            match self.entries[index].children.get(name) {
                Some(child) => index = *child,
                None => return (index, false),
            }
        }
        (index, true)
    }

    pub fn find(&self, path: &str) -> Option<usize> {
        let (index, found) = self.nearest(path);
        found.then_some(index)
    }

    /// Creates the missing queues of a path, if allowed.
    pub fn find_or_create(&mut self, dims: &ResourceTypes, path: &str) -> Option<usize> {
        let (mut index, exists) = self.nearest(path);
        if exists {
            return Some(index);
        }
        if self.entries[index].leaf || !path.starts_with("root.") {
            return None;
        }
        let known_length = self.entries[index].path.len() + 1;
        let names: Vec<&str> = path[known_length..].split('.').collect();
        if names.iter().any(|name| name.is_empty()) {
            return None;
        }
        let template = self.find_template(index);
        for name in names {
            self.entries[index].leaf = false;
            index = self.add(dims, name, Some(index));
        }
        if let Some(template) = template {
            let queue_state = &mut self.entries[index];
            queue_state.max = dims.limit_vector(&template.max);
            queue_state.guaranteed = dims.limit_vector(&template.guaranteed);
            queue_state.max_applications = template.max_applications;
            queue_state.settings.sort = template.sort.unwrap_or(queue_state.settings.sort);
        }
        Some(index)
    }

    /// Returns the nearest template for queues that are created below this one.
    fn find_template(&self, from: usize) -> Option<&'a Template> {
        let mut path = self.path(from);
        path.find_map(|queue| self.entries[queue].config?.template.as_ref())
    }

    /// Returns the path from a queue up to the root.
    pub fn path(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(from), |queue| self.entries[*queue].parent)
    }

    /// Returns whether `top` is the queue itself or one of its ancestors.
    pub fn is_below(&self, queue: usize, top: usize) -> bool {
        self.path(queue).any(|ancestor| ancestor == top)
    }

    pub fn leaves(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.entries.len()).filter(|index| self.entries[*index].leaf)
    }

    /// Returns the maximum of a queue by type. The value nearest to the queue applies. Without a
    /// guarantee, the share of the queue is a fraction of this maximum.
    pub fn fair_max(&self, queue: usize, total_capacity: &[u64]) -> LimitVector {
        let capacities = total_capacity
            .iter()
            .map(|amount| (*amount > 0).then_some(*amount));
        let mut max: LimitVector = capacities.collect();
        let mut path: Vec<usize> = self.path(queue).collect();
        path.reverse();
        for queue in path {
            for (max, own_max) in max.iter_mut().zip(&self.entries[queue].max) {
                *max = own_max.or(*max);
            }
        }
        max
    }

    /// Returns the remaining maximum over the whole path. `None` means unlimited.
    pub fn headroom(&self, queue: usize, total_capacity: &[u64]) -> LimitVector {
        let pairs = total_capacity.iter().zip(&self.entries[ROOT].used);
        let mut headroom: LimitVector = pairs
            .map(|(amount, used)| Some(amount.saturating_sub(*used)))
            .collect();
        for queue in self.path(queue) {
            let queue_state = &self.entries[queue];
            let limits = queue_state.max.iter().zip(&queue_state.used);
            for (amount, (max, used)) in headroom.iter_mut().zip(limits) {
                if let Some(max) = max {
                    let remaining = max.saturating_sub(*used);
                    *amount = Some(amount.map_or(remaining, |amount| amount.min(remaining)));
                }
            }
        }
        headroom
    }

    /// Returns the priority that the queue `top` sees, after adding the offsets of the queues in
    /// between. A fence replaces the priorities below it by its own offset.
    pub fn priority_below(&self, top: usize, queue: usize, priority: i32) -> i32 {
        let path = self.path(queue).take_while(|current| *current != top);
        path.fold(priority, |priority, current| {
            self.priority_for_parent(current, priority)
        })
    }

    /// Returns the priority that the parent of the queue sees for work of this priority.
    pub fn priority_for_parent(&self, queue: usize, priority: i32) -> i32 {
        let queue_state = &self.entries[queue];
        if queue_state.priority_fence {
            queue_state.priority_offset
        } else {
            queue_state.priority_offset.saturating_add(priority)
        }
    }
}
