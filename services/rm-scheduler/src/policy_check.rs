//! Checks a new policy against the existing work. Classes and queues in use must stay. All other
//! checks are in the policy crate.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::policy::Policy;
use hayward_rm_scheduler_capacity::reload::reload;
use hayward_rm_scheduler_domain::snapshot::queues::Queues;
pub use hayward_rm_scheduler_policy::Fault;
use hayward_rm_scheduler_policy::{Rules, pointer};
use hayward_vocabulary::Timestamp;

/// Name of the publication with one entry, the policy in force. Services do not follow it, but
/// external programs may.
pub const POLICY: &str = "policy";

/// Classes and queues that a new policy must not break.
#[derive(Debug, Default)]
pub struct InUse {
    /// Classes with work in them, which must not be removed.
    pub classes: BTreeSet<String>,
    /// Queues of each pool that has queues, and its leaf queues with applications.
    pub queues: BTreeMap<String, (Queues, BTreeSet<String>)>,
    /// True if the queues of a pool may be removed although work is in them.
    pub may_drop: bool,
}

/// Returns all faults of a new policy. The policy may come into force if there is none.
pub fn faults(policy: &Policy, in_use: &InUse) -> Vec<Fault> {
    let mut faults = hayward_rm_scheduler_policy::faults(policy);
    let is_served = |name: &String| {
        let class = policy.classes.get(name);
        class.is_some_and(|class| !class.is_abstract)
    };
    let classes = in_use.classes.iter();
    faults.extend(classes.filter(|name| !is_served(name)).map(|name| {
        Fault {
            pointer: pointer(&["classes", name]),
            detail:
                "is in use: end or move its work first, or ask with drop_classes=true, which ends \
                 jobs and services in it"
                    .to_owned(),
        }
    }));
    add_queue_faults(policy, in_use, &mut faults);
    faults
}

/// Finds faults of the queues. Removing a queue is no fault, because the queue drains. A change is
/// a fault only if it is impossible while work is in the queue.
fn add_queue_faults(policy: &Policy, in_use: &InUse, faults: &mut Vec<Fault>) {
    let new_queues = Rules::new(policy).queues;
    for (pool, (old, used)) in &in_use.queues {
        let queues_pointer = pointer(&["pools", pool, "queues"]);
        let configured_queues = policy.pools.get(pool).and_then(|pool| pool.queues.as_ref());
        match new_queues.get(pool) {
            Some(new) => {
                let no_time = Timestamp::default();
                let found = reload(old, new, used, no_time).err().unwrap_or_default();
                faults.extend(found.into_iter().map(|fault| Fault {
                    pointer: format!("{queues_pointer}{}", fault.pointer),
                    detail: fault.detail,
                }));
            }
            None if configured_queues.is_none() && !used.is_empty() && !in_use.may_drop => {
                let names: Vec<&str> = used.iter().take(8).map(String::as_str).collect();
                faults.push(Fault {
                    pointer: queues_pointer,
                    detail: format!(
                        "are in use ({}): end their work first, or ask with drop_classes=true, \
                         which ends it",
                        names.join(", ")
                    ),
                });
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_in_use_is_neither_removed_nor_made_abstract() {
        let in_use = InUse {
            classes: BTreeSet::from(["normal".to_owned(), "low".to_owned()]),
            ..InUse::default()
        };
        assert!(faults(&Policy::default(), &in_use).is_empty());
        let mut policy = Policy::default();
        policy.classes.remove("low");
        let normal = policy.classes.entry("normal".into()).or_default();
        normal.is_abstract = true;
        normal.default = false;
        let high = policy.classes.entry("high".into()).or_default();
        high.default = true;
        let pointers: Vec<String> = faults(&policy, &in_use)
            .into_iter()
            .map(|fault| fault.pointer)
            .collect();
        assert_eq!(pointers, ["/classes/low", "/classes/normal"]);
    }
}
