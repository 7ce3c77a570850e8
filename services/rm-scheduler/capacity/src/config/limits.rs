//! Validation of user and group limits.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::snapshot::queues::{Limit, Queue};

use super::{At, Faults, acl::check_name, inherited_queue::InheritedQueue};
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

pub(super) fn check(inherited: &InheritedQueue, faults: &mut Faults) {
    let at = inherited.at.to("limits");
    for (index, limit) in inherited.queue.limits.iter().enumerate() {
        let at = at.nth(index);
        if limit.users.is_empty() && limit.groups.is_empty() {
            faults.add(&at, "names no user or group");
        }
        let nothing = limit.max.values().all(|amount| *amount == 0);
        if nothing && limit.max_applications.is_none() {
            faults.add(
                &at,
                "has no effect: add max_resources, or max_applications above 0",
            );
        }
        within(limit, inherited.queue, &at, faults);
        for list in &NAME_LISTS {
            for name in (list.select)(limit) {
                for other in limits_above(inherited, list, name) {
                    compare(limit, other, name, &at, faults);
                }
            }
        }
    }
    for list in &NAME_LISTS {
        check_names(&inherited.queue.limits, list, &at, faults);
    }
}

/// Checks that each name appears once, and that the wildcard is alone and last.
fn check_names(limits: &[Limit], list: &NameList, at: &At, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    let mut closed = false;
    for (index, limit) in limits.iter().enumerate() {
        let at = at.nth(index).to(list.field);
        let all = (list.select)(limit);
        if closed && !all.is_empty() {
            faults.add(
                &at,
                "follows the wildcard entry; move that entry to the end",
            );
        }
        if all.len() > 1 && all.iter().any(|name| name == WILDCARD) {
            faults.add(&at, "has \"*\" among other names; give it its own entry");
        }
        for name in all {
            check_name(name, &at, faults);
            if name == WILDCARD {
                if list.field == "groups" && seen.is_empty() {
                    let detail = "\"*\" needs a named group before it; use users for the wildcard";
                    faults.add(&at, detail);
                }
                closed = true;
            }
            if !seen.insert(name) {
                faults.add(&at, format!("{name:?} appears twice"));
            }
        }
    }
}

fn within(limit: &Limit, queue: &Queue, at: &At, faults: &mut Faults) {
    for (resource, amount) in &limit.max {
        if let Some(most) = queue.max.get(resource).filter(|most| amount > *most) {
            let detail = format!(
                "is more than the {} of the queue",
                amount_text(resource, *most)
            );
            faults.add(&at.to("max_resources").to(resource), detail);
        }
    }
    if let (Some(own), Some(most)) = (limit.max_applications, queue.max_applications)
        && own > most
    {
        let detail = format!("is more than the {most} of the queue");
        faults.add(&at.to("max_applications"), detail);
    }
}

/// Limits of the same name in the queues above, the nearest first.
fn limits_above<'a>(
    inherited: &InheritedQueue<'a>,
    list: &NameList,
    name: &String,
) -> impl Iterator<Item = &'a Limit> {
    let queues = inherited.limits.iter();
    queues.filter_map(|queue| {
        let mut limits = queue.limits.iter();
        limits.find(|other| (list.select)(other).contains(name))
    })
}

/// Checks that a limit does not exceed the limit of the same name above it.
fn compare(limit: &Limit, above: &Limit, name: &str, at: &At, faults: &mut Faults) {
    for (resource, amount) in &limit.max {
        if let Some(most) = above.max.get(resource).filter(|most| amount > *most) {
            let most = amount_text(resource, *most);
            let detail = format!("is more than the {most} that {name:?} has above");
            faults.add(&at.to("max_resources").to(resource), detail);
        }
    }
    if let (Some(own), Some(most)) = (limit.max_applications, above.max_applications)
        && own > most
    {
        let detail = format!("is more than the {most} that {name:?} has above");
        faults.add(&at.to("max_applications"), detail);
    }
}
