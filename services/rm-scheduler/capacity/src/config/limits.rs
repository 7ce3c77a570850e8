//! Validation of user and group limits.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::snapshot::queues::{Limit, Queue};

use super::{Faults, JsonPointer, acl::check_name, inherited_queue::InheritedQueue};
use crate::amount::amount_text;

const WILDCARD: &str = "*";

/// The users or the groups of a limit.
struct NameList {
    /// Field of the document.
    field: &'static str,
    select: fn(&Limit) -> &Vec<String>,
}

const NAME_LISTS: [NameList; 2] = [
    NameList {
        field: "users",
        select: |limit| &limit.users,
    },
    NameList {
        field: "groups",
        select: |limit| &limit.groups,
    },
];

/// Checks all limits of a queue.
pub(super) fn check(inherited: &InheritedQueue, faults: &mut Faults) {
    let pointer = inherited.pointer.child("limits");
    for (index, limit) in inherited.queue.limits.iter().enumerate() {
        let pointer = pointer.item(index);
        if limit.users.is_empty() && limit.groups.is_empty() {
            faults.add(&pointer, "names no user or group");
        }
        let is_unlimited = limit.max.values().all(|amount| *amount == 0);
        if is_unlimited && limit.max_applications.is_none() {
            faults.add(
                &pointer,
                "has no effect: add max_resources, or max_applications above 0",
            );
        }
        check_queue_maximum(limit, inherited.queue, &pointer, faults);
        for list in &NAME_LISTS {
            for name in (list.select)(limit) {
                for other in limits_above(inherited, list, name) {
                    check_limit_above(limit, other, name, &pointer, faults);
                }
            }
        }
    }
    for list in &NAME_LISTS {
        check_names(&inherited.queue.limits, list, &pointer, faults);
    }
}

/// Checks that each name appears once, and that the wildcard is alone and last.
fn check_names(limits: &[Limit], list: &NameList, pointer: &JsonPointer, faults: &mut Faults) {
    let mut known = BTreeSet::new();
    let mut has_wildcard = false;
    for (index, limit) in limits.iter().enumerate() {
        let pointer = pointer.item(index).child(list.field);
        let names = (list.select)(limit);
        if has_wildcard && !names.is_empty() {
            faults.add(
                &pointer,
                "follows the wildcard entry; move that entry to the end",
            );
        }
        if names.len() > 1 && names.iter().any(|name| name == WILDCARD) {
            faults.add(
                &pointer,
                "has \"*\" among other names; give it its own entry",
            );
        }
        for name in names {
            check_name(name, &pointer, faults);
            if name == WILDCARD {
                if list.field == "groups" && known.is_empty() {
                    let detail = "\"*\" needs a named group before it; use users for the wildcard";
                    faults.add(&pointer, detail);
                }
                has_wildcard = true;
            }
            if !known.insert(name) {
                faults.add(&pointer, format!("{name:?} appears twice"));
            }
        }
    }
}

/// Checks that a limit does not exceed the maximum of its queue.
fn check_queue_maximum(limit: &Limit, queue: &Queue, pointer: &JsonPointer, faults: &mut Faults) {
    for (resource, amount) in &limit.max {
        if let Some(max) = queue.max.get(resource).filter(|max| amount > *max) {
            let detail = format!(
                "is more than the {} of the queue",
                amount_text(resource, *max)
            );
            faults.add(&pointer.child("max_resources").child(resource), detail);
        }
    }
    if let (Some(own_max), Some(max)) = (limit.max_applications, queue.max_applications)
        && own_max > max
    {
        let detail = format!("is more than the {max} of the queue");
        faults.add(&pointer.child("max_applications"), detail);
    }
}

/// Returns the limits of the same user or group in the queues above, the nearest first.
fn limits_above<'a>(
    inherited: &InheritedQueue<'a>,
    list: &NameList,
    name: &String,
) -> impl Iterator<Item = &'a Limit> {
    let queues = inherited.ancestors.iter();
    queues.filter_map(|queue| {
        let mut limits = queue.limits.iter();
        limits.find(|other| (list.select)(other).contains(name))
    })
}

/// Checks that a limit does not exceed the limit of the same user or group in a queue above.
fn check_limit_above(
    limit: &Limit,
    above: &Limit,
    name: &str,
    pointer: &JsonPointer,
    faults: &mut Faults,
) {
    for (resource, amount) in &limit.max {
        if let Some(max) = above.max.get(resource).filter(|max| amount > *max) {
            let max = amount_text(resource, *max);
            let detail = format!("is more than the {max} that {name:?} has above");
            faults.add(&pointer.child("max_resources").child(resource), detail);
        }
    }
    if let (Some(own_max), Some(max)) = (limit.max_applications, above.max_applications)
        && own_max > max
    {
        let detail = format!("is more than the {max} that {name:?} has above");
        faults.add(&pointer.child("max_applications"), detail);
    }
}
