//! Serve order: children of a queue by priority and share, applications within a leaf by its
//! policy. Keys are updated with each change, so finding the next application reads only the front
//! of each level.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    order::{AppKey, QueueKey, dominant_shares, queue_share},
    resource_vec::{Vector, add, take, times},
    round_state::RoundState,
    tree::ROOT,
};

pub(crate) struct ServeOrder {
    rows: Vec<Row>,
    apps: Vec<Option<(AppKey, i32)>>,
}

#[derive(Default)]
struct Row {
    /// Applications of a leaf.
    apps: BTreeSet<AppKey>,
    /// Number of applications per priority.
    priorities: BTreeMap<i32, u64>,
    /// Children of an inner queue.
    children: BTreeSet<QueueKey>,
    /// Key in its parent. `None` while nothing waits in it.
    key: Option<QueueKey>,
    /// Priority that its parent sees. `None` while nothing waits in it.
    exported: Option<i32>,
    pending: Vector,
}

impl ServeOrder {
    pub fn new(round: &mut RoundState) -> Self {
        let row = || Row {
            pending: round.dims.zero(),
            ..Row::default()
        };
        let mut order = Self {
            rows: round.tree.entries.iter().map(|_| row()).collect(),
            apps: vec![None; round.apps.len()],
        };
        for app in 0..round.apps.len() {
            let Ok(queue) = round.apps[app].queue else {
                continue;
            };
            let mut pending = round.dims.zero();
            let items = round.apps[app].items.iter();
            for item in items.filter(|item| round.items[**item].why.is_none()) {
                let missing = round.items[*item].missing();
                add(&mut pending, &times(round.vector(*item), missing));
            }
            for at in round.tree.path(queue) {
                add(&mut order.rows[at].pending, &pending);
            }
            order.enter(round, app, queue);
        }
        // Parents precede their children, so the reverse order visits leaves first.
        for queue in (1..round.tree.entries.len()).rev() {
            order.place(round, queue);
        }
        order
    }

    /// Returns the next application to serve.
    pub fn first(&self, round: &RoundState) -> Option<usize> {
        let mut at = ROOT;
        while !round.tree.entries[at].leaf {
            at = self.rows[at].children.first()?.queue;
        }
        self.rows[at].apps.first().map(|key| key.app)
    }

    /// Reduces the waiting amount of a queue.
    pub fn less(&mut self, round: &RoundState, queue: usize, vector: &[u64]) {
        for at in round.tree.path(queue) {
            take(&mut self.rows[at].pending, vector);
        }
    }

    /// Updates the keys after a change of the application.
    pub fn update(&mut self, round: &mut RoundState, app: usize) {
        let Ok(queue) = round.apps[app].queue else {
            return;
        };
        self.enter(round, app, queue);
        let mut at = queue;
        while let Some(parent) = round.tree.entries[at].parent {
            self.place(round, at);
            at = parent;
        }
    }

    fn enter(&mut self, round: &mut RoundState, app: usize, queue: usize) {
        let head = round.head(app);
        let row = &mut self.rows[queue];
        if let Some((key, priority)) = self.apps[app].take() {
            row.apps.remove(&key);
            if let Some(count) = row.priorities.get_mut(&priority) {
                *count -= 1;
                if *count == 0 {
                    row.priorities.remove(&priority);
                }
            }
        }
        let Some(head) = head else {
            return;
        };
        let priority = round.items[head].queued.priority;
        let it = &round.apps[app];
        let queue_state = &round.tree.entries[queue];
        let key = AppKey::new(app, priority, it.submitted, queue_state.settings, || {
            dominant_shares(&it.used, &queue_state.guaranteed)
        });
        row.apps.insert(key.clone());
        *row.priorities.entry(priority).or_default() += 1;
        self.apps[app] = Some((key, priority));
    }

    fn place(&mut self, round: &RoundState, queue: usize) {
        let queue_state = &round.tree.entries[queue];
        let Some(parent) = queue_state.parent else {
            return;
        };
        let row = &self.rows[queue];
        let base = if queue_state.leaf {
            row.priorities.last_key_value().map(|(most, _)| *most)
        } else {
            let below = row.children.iter().map(|key| self.rows[key.queue].exported);
            below.flatten().max()
        };
        let exported = base.map(|base| round.tree.exported(queue, base));
        let key = exported.map(|priority| {
            let share = queue_share(&queue_state.used, &round.denominators[queue]);
            let by_priority = round.tree.entries[parent].settings.by_priority;
            QueueKey::new(priority, share, &row.pending, by_priority, queue)
        });
        let row = &mut self.rows[queue];
        row.exported = exported;
        let old = std::mem::replace(&mut row.key, key.clone());
        let siblings = &mut self.rows[parent].children;
        if let Some(old) = old {
            siblings.remove(&old);
        }
        if let Some(key) = key {
            siblings.insert(key);
        }
    }

    /// Returns the priority of a queue that its parent sees.
    #[cfg(test)]
    pub fn exported(&self, queue: usize) -> Option<i32> {
        self.rows[queue].exported
    }

    /// Returns the children in serve order.
    #[cfg(test)]
    pub fn children(&self, queue: usize) -> Vec<usize> {
        let keys = self.rows[queue].children.iter();
        keys.map(|key| key.queue).collect()
    }
}
