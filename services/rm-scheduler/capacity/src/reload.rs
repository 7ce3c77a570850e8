//! Changes of the queue configuration while work runs.
//!
//! The new tree is built completely and replaces the old one, or nothing changes. Running work is
//! never stopped: a removed queue drains, and usage above a new maximum remains.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::snapshot::queues::{Queue, Queues};
use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::Fault;

/// The queues after a change of the configuration, and what changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    pub queues: Queues,
    pub changes: Vec<Change>,
}

/// A change of one queue, named by its full path, or of the whole pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Created(String),
    /// The configuration of the queue changed.
    Changed(String),
    /// A queue that an application had created is now configured.
    Adopted(String),
    /// The queue is no longer configured. Its work continues.
    Draining(String),
    /// A draining queue takes applications again.
    Revived(String),
    Removed(String),
    /// Rules, node order or preemption of the whole pool changed.
    Pool,
}

/// Merges a new configuration. `used` contains the full paths of leaves with applications. `now` is
/// the time of the change.
///
/// # Errors
/// Fails if a used leaf would become a parent, or a used parent a leaf.
pub fn reload(
    old: &Queues,
    new: &Queues,
    used: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Reload, Vec<Fault>> {
    let mut reload = Reload {
        queues: new.clone(),
        changes: Vec::new(),
    };
    let without_root = |queues: &Queues| Queues {
        root: Queue::default(),
        ..queues.clone()
    };
    if without_root(old) != without_root(new) {
        reload.changes.push(Change::Pool);
    }
    let mut merge = TreeMerge {
        used,
        now,
        changes: reload.changes,
        faults: Vec::new(),
    };
    merge.merge_queue("root", &old.root, &mut reload.queues.root);
    if !merge.faults.is_empty() {
        return Err(merge.faults);
    }
    reload.changes = merge.changes;
    reload.changes.sort();
    Ok(reload)
}

/// Returns the queues without those that are draining and have no applications left. Returns `None`
/// if there are no such queues.
pub fn without_drained_queues(queues: &Queues, used: &BTreeSet<String>) -> Option<Queues> {
    fn remove_drained(path: &str, queue: &mut Queue, used: &BTreeSet<String>) -> bool {
        let mut has_removed = false;
        queue.children.retain(|name, child| {
            let path = format!("{path}.{name}");
            has_removed |= remove_drained(&path, child, used);
            let is_drained = child.draining && !is_used(used, &path);
            has_removed |= is_drained;
            !is_drained
        });
        has_removed
    }
    let mut remaining = queues.clone();
    remove_drained("root", &mut remaining.root, used).then_some(remaining)
}

fn is_used(used: &BTreeSet<String>, path: &str) -> bool {
    used.iter().any(|used| {
        let suffix = used.strip_prefix(path);
        suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.'))
    })
}

/// The merge of the running tree of queues into a new configuration.
struct TreeMerge<'a> {
    /// Full paths of the leaves with applications.
    used: &'a BTreeSet<String>,
    now: Timestamp,
    changes: Vec<Change>,
    faults: Vec<Fault>,
}

impl TreeMerge<'_> {
    fn is_used(&self, path: &str) -> bool {
        is_used(self.used, path)
    }

    /// Merges the old state of a queue into its new configuration.
    fn merge_queue(&mut self, path: &str, old: &Queue, new: &mut Queue) {
        if old.is_leaf() != new.is_leaf() && self.is_used(path) {
            let (was, becomes) = if old.is_leaf() {
                ("a leaf", "a parent")
            } else {
                ("a parent", "a leaf")
            };
            self.faults.push(Fault {
                pointer: format!("/queues/{}", path.replace('.', "/queues/")),
                detail: format!(
                    "queue {path} is {was} and in use: empty it before it becomes {becomes}"
                ),
            });
            return;
        }
        let own_settings = |queue: &Queue| Queue {
            children: BTreeMap::new(),
            draining: false,
            drain_began_at: None,
            ..queue.clone()
        };
        if old.draining {
            self.changes.push(Change::Revived(path.to_owned()));
        } else if own_settings(old) != own_settings(new) {
            self.changes.push(Change::Changed(path.to_owned()));
        }
        for (name, child) in &mut new.children {
            let path = format!("{path}.{name}");
            match old.children.get(name) {
                Some(old) => self.merge_queue(&path, old, child),
                None => self.record_created(&path, child),
            }
        }
        for (name, child) in &old.children {
            if new.children.contains_key(name) {
                continue;
            }
            let path = format!("{path}.{name}");
            if let Some(draining) = self.drain_removed(&path, child) {
                new.children.insert(name.clone(), draining);
                new.parent = true;
            }
        }
    }

    fn record_created(&mut self, path: &str, queue: &Queue) {
        let adopted = self.used.contains(path);
        let change = if adopted {
            Change::Adopted
        } else {
            Change::Created
        };
        self.changes.push(change(path.to_owned()));
        for (name, child) in &queue.children {
            self.record_created(&format!("{path}.{name}"), child);
        }
    }

    /// Returns the part of a removed queue that must drain, or `None` if it is unused.
    fn drain_removed(&mut self, path: &str, queue: &Queue) -> Option<Queue> {
        if !self.is_used(path) {
            self.changes.push(Change::Removed(path.to_owned()));
            return None;
        }
        if !queue.draining {
            self.changes.push(Change::Draining(path.to_owned()));
        }
        let children = queue.children.iter().filter_map(|(name, child)| {
            let draining = self.drain_removed(&format!("{path}.{name}"), child)?;
            Some((name.clone(), draining))
        });
        Some(Queue {
            children: children.collect(),
            draining: true,
            drain_began_at: queue.drain_began_at.or(Some(self.now)),
            ..queue.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_000);

    fn queues_with_leaves(names: &[&str]) -> Queues {
        let leaf = Queue::default;
        let children = names.iter().map(|name| ((*name).to_owned(), leaf()));
        Queues {
            root: Queue {
                parent: true,
                children: children.collect(),
                ..Queue::default()
            },
            ..Queues::default()
        }
    }

    fn used_paths(paths: &[&str]) -> BTreeSet<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn a_used_queue_drains_and_can_return() {
        let (old, new) = (
            queues_with_leaves(&["a", "b", "c"]),
            queues_with_leaves(&["a", "made", "new"]),
        );
        let used = used_paths(&["root.b", "root.made"]);
        let reloaded = reload(&old, &new, &used, NOW).unwrap();
        assert_eq!(
            reloaded.changes,
            [
                Change::Created("root.new".into()),
                Change::Adopted("root.made".into()),
                Change::Draining("root.b".into()),
                Change::Removed("root.c".into()),
            ]
        );
        assert!(reloaded.queues.root.children["b"].draining);
        let restored = reload(&reloaded.queues, &old, &used, NOW).unwrap();
        assert!(restored.changes.contains(&Change::Revived("root.b".into())));
        assert!(!restored.queues.root.children["b"].draining);
        assert_eq!(without_drained_queues(&reloaded.queues, &used), None);
        let remaining = without_drained_queues(&reloaded.queues, &BTreeSet::new()).unwrap();
        assert!(!remaining.root.children.contains_key("b"));
    }

    #[test]
    fn the_same_configuration_changes_nothing() {
        let old = queues_with_leaves(&["a"]);
        assert_eq!(
            reload(&old, &old, &used_paths(&["root.a"]), NOW)
                .unwrap()
                .changes,
            []
        );
    }

    #[test]
    fn a_used_leaf_cannot_become_a_parent() {
        let (old, mut new) = (queues_with_leaves(&["a"]), queues_with_leaves(&["a"]));
        new.root.children.get_mut("a").unwrap().parent = true;
        let faults = reload(&old, &new, &used_paths(&["root.a"]), NOW).unwrap_err();
        assert_eq!(faults[0].pointer, "/queues/root/queues/a");
        assert!(reload(&old, &new, &used_paths(&[]), NOW).is_ok());
    }
}
