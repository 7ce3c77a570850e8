//! Validation of user and group limits.

use std::collections::BTreeSet;

use hayward_rm_scheduler_domain::snapshot::queues::{Limit, Queue};

use super::{At, Faults, acl::check_name, inherited_queue::InheritedQueue};
use crate::amount::amount_text;

const WILDCARD: &str = "*";

/// Selects the users or the groups of a limit.
type Names = fn(&Limit) -> &Vec<String>;

pub(super) fn check(inherited: &InheritedQueue, faults: &mut Faults) {
    let at = inherited.at.to("limits");
    let kinds: [(&str, Names); 2] = [("users", |it| &it.users), ("groups", |it| &it.groups)];
    for (index, limit) in inherited.queue.limits.iter().enumerate() {
        let at = at.nth(index);
        if limit.users.is_empty() && limit.groups.is_empty() {
            faults.say(&at, "names no user or group");
        }
        let nothing = limit.max.values().all(|amount| *amount == 0);
        if nothing && limit.max_applications.is_none() {
            faults.say(
                &at,
                "has no effect: add max_resources, or max_applications above 0",
            );
        }
        within(limit, inherited.queue, &at, faults);
        for (_, names) in kinds {
            for name in names(limit) {
                above(inherited, (limit, name, names), &at, faults);
            }
        }
    }
    for (kind, names) in kinds {
        who(&inherited.queue.limits, (kind, names), &at, faults);
    }
}

/// Each name appears once; the wildcard is alone and last.
fn who(limits: &[Limit], (kind, names): (&str, Names), at: &At, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    let mut closed = false;
    for (index, limit) in limits.iter().enumerate() {
        let at = at.nth(index).to(kind);
        let all = names(limit);
        if closed && !all.is_empty() {
            faults.say(
                &at,
                "follows the wildcard entry; move that entry to the end",
            );
        }
        if all.len() > 1 && all.iter().any(|name| name == WILDCARD) {
            faults.say(&at, "has \"*\" among other names; give it its own entry");
        }
        for name in all {
            check_name(name, &at, faults);
            if name == WILDCARD {
                if kind == "groups" && seen.is_empty() {
                    let detail = "\"*\" needs a named group before it; use users for the wildcard";
                    faults.say(&at, detail);
                }
                closed = true;
            }
            if !seen.insert(name) {
                faults.say(&at, format!("{name:?} appears twice"));
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
            faults.say(&at.to("max_resources").to(resource), detail);
        }
    }
    if let (Some(own), Some(most)) = (limit.max_applications, queue.max_applications)
        && own > most
    {
        let detail = format!("is more than the {most} of the queue");
        faults.say(&at.to("max_applications"), detail);
    }
}

/// A limit must not exceed the limit of the same name above.
fn above(
    inherited: &InheritedQueue,
    (limit, name, names): (&Limit, &String, Names),
    at: &At,
    faults: &mut Faults,
) {
    for queue in &inherited.limits {
        let Some(other) = queue
            .limits
            .iter()
            .find(|other| names(other).contains(name))
        else {
            continue;
        };
        for (resource, amount) in &limit.max {
            if let Some(most) = other.max.get(resource).filter(|most| amount > *most) {
                let most = amount_text(resource, *most);
                let detail = format!("is more than the {most} that {name:?} has above");
                faults.say(&at.to("max_resources").to(resource), detail);
            }
        }
        if let (Some(own), Some(most)) = (limit.max_applications, other.max_applications)
            && own > most
        {
            let detail = format!("is more than the {most} that {name:?} has above");
            faults.say(&at.to("max_applications"), detail);
        }
    }
}
