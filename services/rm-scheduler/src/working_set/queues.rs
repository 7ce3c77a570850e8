//! Queues of pools: queues of the policy, removed queues that drain, and which queues are in use.
//!
//! The policy configures queues. A removed queue with applications in it drains: it stays in the
//! snapshot, and in rows for a restart, until it is empty.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::policy::PolicyView;
use hayward_rm_scheduler_capacity::reload::{reload, without_drained_queues};
use hayward_rm_scheduler_capacity::used_leaves;
use hayward_rm_scheduler_domain::Snapshot;
use hayward_rm_scheduler_domain::snapshot::queues::{CarriedQueueState, Queue, Queues};

use crate::model::PlannerStateRow;
use crate::working_set::Ledger;

impl Ledger {
    /// Returns the queues of each pool that has queues, and its leaf queues with applications.
    pub(crate) fn queues_in_use(&self) -> BTreeMap<String, (Queues, BTreeSet<String>)> {
        let pools = self.snapshot.queues.iter();
        let pools = pools.map(|(pool, queues)| {
            let mut used = used_leaves(&self.snapshot, pool);
            if !self.followed.all_answered() {
                // Nodes are missing, so the pool of an allocation may be unknown. All queues with
                // allocations therefore count for each pool. A queue that drains without need is
                // removed later. The class of an allocation in a queue is the path of the queue.
                let allocations = self.snapshot.allocations.values();
                let classes = allocations.map(|allocation| &allocation.class);
                used.extend(classes.filter(|it| it.starts_with("root.")).cloned());
            }
            (pool.clone(), (queues.clone(), used))
        });
        pools.collect()
    }

    /// Adds the queues that must drain to the configured queues of `snapshot`.
    pub(crate) fn add_draining_queues(&self, snapshot: &mut Snapshot) {
        for (pool, (old, used)) in self.queues_in_use() {
            let Some(new) = snapshot.queues.get_mut(&pool) else {
                continue;
            };
            // `reload` fails only for changes that `policy_check::faults` has already refused.
            if let Ok(merged) = reload(&old, new, &used, snapshot.now) {
                *new = merged.queues;
            }
        }
    }

    /// Sets the policy after a restart, and restores the queues that were draining.
    pub(crate) fn resume_policy(&mut self, policy: PolicyView) {
        self.set_policy(policy);
        let rows = self.carry_over.rows();
        self.snapshot.replace_all(|snapshot| {
            for row in rows.values() {
                if let PlannerStateRow::DrainingQueue { pool, path, queue } = row
                    && let Some(queues) = snapshot.queues.get_mut(pool)
                {
                    restore_queue(queues, path, queue);
                }
            }
        });
    }

    /// Returns true if a plan may differ without a change, because delays, reservations and waits
    /// of queues end with time.
    pub(crate) fn queues_depend_on_time(&self) -> bool {
        let mut states = self.snapshot.carried.queues.values();
        self.planning.waits_for_time() || states.any(|state| *state != CarriedQueueState::default())
    }

    /// Removes queues that have drained.
    pub(crate) fn remove_drained_queues(&mut self) {
        let has_draining = |queues: &&Queues| is_draining(&queues.root);
        let pools = self
            .snapshot
            .queues
            .iter()
            .filter(|(_, it)| has_draining(it));
        let drained: Vec<(String, Queues)> = pools
            .filter_map(|(pool, queues)| {
                let remaining = without_drained_queues(queues, &used_leaves(&self.snapshot, pool))?;
                Some((pool.clone(), remaining))
            })
            .collect();
        for (pool, remaining) in drained {
            self.snapshot.set_queues(&pool, remaining);
        }
    }
}

fn is_draining(queue: &Queue) -> bool {
    queue.draining || queue.children.values().any(is_draining)
}

/// Returns a row for each queue that drains.
pub(crate) fn draining_rows(queues: &BTreeMap<String, Queues>) -> Vec<PlannerStateRow> {
    fn collect_rows(pool: &str, path: &str, queue: &Queue, found: &mut Vec<PlannerStateRow>) {
        if queue.draining {
            found.push(PlannerStateRow::DrainingQueue {
                pool: pool.to_owned(),
                path: path.to_owned(),
                queue: Box::new(Queue {
                    children: BTreeMap::new(),
                    ..queue.clone()
                }),
            });
        }
        for (name, child) in &queue.children {
            collect_rows(pool, &format!("{path}.{name}"), child, found);
        }
    }
    let mut found = Vec::new();
    for (pool, queues) in queues {
        collect_rows(pool, "root", &queues.root, &mut found);
    }
    found
}

/// Restores a queue that was draining before the restart.
fn restore_queue(queues: &mut Queues, path: &str, queue: &Queue) {
    let mut names = path.split('.').skip(1).peekable();
    let mut current = &mut queues.root;
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            // A queue that is configured again stays as configured.
            current
                .children
                .entry(name.to_owned())
                .or_insert_with(|| queue.clone());
            current.parent = true;
            return;
        }
        let Some(next) = current.children.get_mut(name) else {
            return;
        };
        current = next;
    }
}
