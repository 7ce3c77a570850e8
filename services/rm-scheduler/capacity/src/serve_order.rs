//! Serve order: children of a queue by priority and share, applications within a leaf by its
//! policy. Keys are updated with each change, so finding the next application reads only the front
//! of each level.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    queue_tree::ROOT,
    resource_vec::{Vector, add, scale, subtract},
    round_state::RoundState,
    sort_keys::{AppKey, QueueKey, dominant_shares, queue_share},
};

pub(crate) struct ServeOrder {
    queues: Vec<QueueEntry>,
    /// Sort key and priority of each application. `None` while no work of it waits.
    apps: Vec<Option<(AppKey, i32)>>,
}

#[derive(Default)]
struct QueueEntry {
    /// Applications of a leaf.
    apps: BTreeSet<AppKey>,
    /// Number of applications per priority.
    priorities: BTreeMap<i32, u64>,
    /// Children of an inner queue.
    children: BTreeSet<QueueKey>,
    /// Sort key among the children of the parent. `None` while no work waits in the queue.
    key: Option<QueueKey>,
    /// Priority that the parent sees. `None` while no work waits in the queue.
    exported_priority: Option<i32>,
    /// Resources of the waiting work.
    pending: Vector,
}

impl ServeOrder {
    pub fn new(round: &mut RoundState) -> Self {
        let new_entry = || QueueEntry {
            pending: round.dims.zero(),
            ..QueueEntry::default()
        };
        let mut serve_order = Self {
            queues: round.tree.entries.iter().map(|_| new_entry()).collect(),
            apps: vec![None; round.apps.len()],
        };
        for app in 0..round.apps.len() {
            let Ok(queue) = round.apps[app].queue else {
                continue;
            };
            let mut pending = round.dims.zero();
            let items = round.apps[app].items.iter();
            for item in items.filter(|item| round.items[**item].wait_reason.is_none()) {
                let missing = round.items[*item].missing();
                add(&mut pending, &scale(round.vector(*item), missing));
            }
            for ancestor in round.tree.path(queue) {
                add(&mut serve_order.queues[ancestor].pending, &pending);
            }
            serve_order.update_application(round, app, queue);
        }
        // Parents precede their children, so the reverse order visits leaves first.
        for queue in (1..round.tree.entries.len()).rev() {
            serve_order.update_queue(round, queue);
        }
        serve_order
    }

    /// Returns the next application to serve.
    pub fn next_application(&self, round: &RoundState) -> Option<usize> {
        let mut queue = ROOT;
        while !round.tree.entries[queue].leaf {
            queue = self.queues[queue].children.first()?.queue;
        }
        self.queues[queue].apps.first().map(|key| key.app)
    }

    /// Reduces the waiting amount of a queue.
    pub fn reduce_pending(&mut self, round: &RoundState, queue: usize, vector: &[u64]) {
        for ancestor in round.tree.path(queue) {
            subtract(&mut self.queues[ancestor].pending, vector);
        }
    }

    /// Updates the keys after a change of the application.
    pub fn update(&mut self, round: &mut RoundState, app: usize) {
        let Ok(queue) = round.apps[app].queue else {
            return;
        };
        self.update_application(round, app, queue);
        let mut current = queue;
        while let Some(parent) = round.tree.entries[current].parent {
            self.update_queue(round, current);
            current = parent;
        }
    }

    fn update_application(&mut self, round: &mut RoundState, app: usize, queue: usize) {
        let item = round.next_item(app);
        let queue_entry = &mut self.queues[queue];
        if let Some((key, priority)) = self.apps[app].take() {
            queue_entry.apps.remove(&key);
            if let Some(count) = queue_entry.priorities.get_mut(&priority) {
                *count -= 1;
                if *count == 0 {
                    queue_entry.priorities.remove(&priority);
                }
            }
        }
        let Some(item) = item else {
            return;
        };
        let priority = round.items[item].queued.priority;
        let app_state = &round.apps[app];
        let queue_state = &round.tree.entries[queue];
        let key = AppKey::new(
            app,
            priority,
            app_state.submitted,
            queue_state.settings,
            || dominant_shares(&app_state.used, &queue_state.guaranteed),
        );
        queue_entry.apps.insert(key.clone());
        *queue_entry.priorities.entry(priority).or_default() += 1;
        self.apps[app] = Some((key, priority));
    }

    fn update_queue(&mut self, round: &RoundState, queue: usize) {
        let queue_state = &round.tree.entries[queue];
        let Some(parent) = queue_state.parent else {
            return;
        };
        let queue_entry = &self.queues[queue];
        let priority = if queue_state.leaf {
            queue_entry
                .priorities
                .last_key_value()
                .map(|(highest, _)| *highest)
        } else {
            let children = queue_entry
                .children
                .iter()
                .map(|key| self.queues[key.queue].exported_priority);
            children.flatten().max()
        };
        let exported_priority =
            priority.map(|priority| round.tree.priority_for_parent(queue, priority));
        let key = exported_priority.map(|priority| {
            let share = queue_share(&queue_state.used, &round.denominators[queue]);
            let by_priority = round.tree.entries[parent].settings.by_priority;
            QueueKey::new(priority, share, &queue_entry.pending, by_priority, queue)
        });
        let queue_entry = &mut self.queues[queue];
        queue_entry.exported_priority = exported_priority;
        let old = std::mem::replace(&mut queue_entry.key, key.clone());
        let siblings = &mut self.queues[parent].children;
        if let Some(old) = old {
            siblings.remove(&old);
        }
        if let Some(key) = key {
            siblings.insert(key);
        }
    }

    /// Returns the priority of a queue that its parent sees.
    #[cfg(test)]
    pub fn exported_priority(&self, queue: usize) -> Option<i32> {
        self.queues[queue].exported_priority
    }

    /// Returns the children in serve order.
    #[cfg(test)]
    pub fn children(&self, queue: usize) -> Vec<usize> {
        let keys = self.queues[queue].children.iter();
        keys.map(|key| key.queue).collect()
    }
}
