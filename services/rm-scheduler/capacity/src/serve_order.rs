//! Whose turn it is (section 8): in each queue its children by priority and share, in each leaf its
//! applications. Shares are reckoned once for each change and kept with the key (8.3), so a turn
//! costs a look at the front of each level.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    order::{AppKey, QueueKey, dominant_shares, queue_share},
    resource_vec::{Vector, add, take, times},
    round_state::Books,
    tree::ROOT,
};

pub(crate) struct Line {
    rows: Vec<Row>,
    apps: Vec<Option<(AppKey, i32)>>,
}

#[derive(Default)]
struct Row {
    /// Of a leaf.
    apps: BTreeSet<AppKey>,
    /// How many of its applications have which priority.
    priorities: BTreeMap<i32, u64>,
    /// Of the others.
    children: BTreeSet<QueueKey>,
    /// In its parent; nothing waits in it where it has none.
    key: Option<QueueKey>,
    /// As its parent sees it; nothing waits where there is none (8.4).
    exported: Option<i32>,
    pending: Vector,
}

impl Line {
    pub fn of(books: &mut Books) -> Self {
        let row = || Row {
            pending: books.dims.zero(),
            ..Row::default()
        };
        let mut line = Self {
            rows: books.tree.spots.iter().map(|_| row()).collect(),
            apps: vec![None; books.apps.len()],
        };
        for app in 0..books.apps.len() {
            let Ok(queue) = books.apps[app].queue else {
                continue;
            };
            let mut pending = books.dims.zero();
            let asks = books.apps[app].asks.iter();
            for ask in asks.filter(|ask| books.asks[**ask].why.is_none()) {
                let missing = books.asks[*ask].missing();
                add(&mut pending, &times(books.vector(*ask), missing));
            }
            for at in books.tree.path(queue) {
                add(&mut line.rows[at].pending, &pending);
            }
            line.enter(books, (app, queue));
        }
        // Leaves are deeper than what they hang on, and parents come before their children.
        for queue in (1..books.tree.spots.len()).rev() {
            line.place(books, queue);
        }
        line
    }

    /// The application whose turn it is.
    pub fn first(&self, books: &Books) -> Option<usize> {
        let mut at = ROOT;
        while !books.tree.spots[at].leaf {
            at = self.rows[at].children.first()?.queue;
        }
        self.rows[at].apps.first().map(|key| key.app)
    }

    /// So much less waits there.
    pub fn less(&mut self, books: &Books, queue: usize, vector: &[u64]) {
        for at in books.tree.path(queue) {
            take(&mut self.rows[at].pending, vector);
        }
    }

    /// Something changed for this application.
    pub fn update(&mut self, books: &mut Books, app: usize) {
        let Ok(queue) = books.apps[app].queue else {
            return;
        };
        self.enter(books, (app, queue));
        let mut at = queue;
        while let Some(parent) = books.tree.spots[at].parent {
            self.place(books, at);
            at = parent;
        }
    }

    fn enter(&mut self, books: &mut Books, (app, queue): (usize, usize)) {
        let head = books.head(app);
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
        let priority = books.asks[head].queued.priority;
        let it = &books.apps[app];
        let spot = &books.tree.spots[queue];
        let key = AppKey::of(
            (priority, it.submitted),
            || dominant_shares(&it.used, &spot.guaranteed),
            (spot.manner.sort, spot.manner.by_priority),
            app,
        );
        row.apps.insert(key.clone());
        *row.priorities.entry(priority).or_default() += 1;
        self.apps[app] = Some((key, priority));
    }

    fn place(&mut self, books: &Books, queue: usize) {
        let spot = &books.tree.spots[queue];
        let Some(parent) = spot.parent else {
            return;
        };
        let row = &self.rows[queue];
        let base = if spot.leaf {
            row.priorities.last_key_value().map(|(most, _)| *most)
        } else {
            let below = row.children.iter().map(|key| self.rows[key.queue].exported);
            below.flatten().max()
        };
        let exported = base.map(|base| books.tree.exported(queue, base));
        let key = exported.map(|priority| {
            let share = queue_share(&spot.used, &books.denominators[queue]);
            let by_priority = books.tree.spots[parent].manner.by_priority;
            QueueKey::of((priority, share), &row.pending, by_priority, queue)
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

    /// The priority of a queue as its parent sees it (8.4).
    #[cfg(test)]
    pub fn exported(&self, queue: usize) -> Option<i32> {
        self.rows[queue].exported
    }

    /// Children in the order in which they are served.
    #[cfg(test)]
    pub fn children(&self, queue: usize) -> Vec<usize> {
        let keys = self.rows[queue].children.iter();
        keys.map(|key| key.queue).collect()
    }
}
