//! What makes a tree of queues acceptable (11.1), once it can be read.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{Amounts, Queue, Queues};

use super::{
    At, Faults,
    document::Document,
    limits, placement,
    translate::{ROOT, is_rooted},
};
use crate::amount::told;

/// Queues at most, and levels; every round walks the tree.
const MOST: usize = 10_000;
const LEVELS: usize = 20;

pub(super) fn all(document: &Document, queues: &Queues, faults: &mut Faults) {
    let top = At::default().to("queues");
    if document.queues.is_empty() {
        faults.say(&top, "needs at least one queue, as in {\"default\": {}}");
        return;
    }
    if count(&queues.root) > MOST {
        faults.say(&top, format!("has more than {MOST} queues"));
        return;
    }
    let root = Spot {
        queue: &queues.root,
        at: if is_rooted(document) {
            names(document, &top)
        } else {
            At::default()
        },
        max: Amounts::new(),
        applications: None,
        limits: Vec::new(),
        level: 1,
    };
    let resources = root.at.to("resources");
    if !(queues.root.max.is_empty() && queues.root.guaranteed.is_empty()) {
        faults.say(
            &resources,
            "the root has what its nodes have: remove its resources",
        );
    }
    if !document.limits.is_empty() && is_rooted(document) {
        let own = document.queues.values().next().map(|root| &root.limits);
        if own.is_some_and(|own| !own.is_empty() && *own != document.limits) {
            let detail = "differ from those of the root: write them in one place";
            faults.say(&At::default().to("limits"), detail);
        }
    }
    judge(&root, faults);
    placement::check(
        queues,
        &At::default().to("placement"),
        &document.placement,
        faults,
    );
}

/// Where the root stands, however it is written.
fn names(document: &Document, top: &At) -> At {
    let name = document.queues.keys().next();
    top.to(name.map_or(ROOT, String::as_str))
}

fn count(queue: &Queue) -> usize {
    1 + queue.children.values().map(count).sum::<usize>()
}

/// A queue with what it has from above.
pub(super) struct Spot<'a> {
    pub queue: &'a Queue,
    pub at: At,
    /// Of each type, the nearest maximum above it or its own.
    max: Amounts,
    applications: Option<u64>,
    /// Above it, the nearest first.
    pub limits: Vec<&'a Queue>,
    level: usize,
}

fn judge(spot: &Spot, faults: &mut Faults) {
    if spot.level > LEVELS {
        faults.say(&spot.at, format!("is deeper than {LEVELS} levels"));
        return;
    }
    let queue = spot.queue;
    let resources = spot.at.to("resources");
    for (resource, guaranteed) in &queue.guaranteed {
        let most = queue.max.get(resource).or(spot.max.get(resource));
        if let Some(most) = most.filter(|most| guaranteed > *most) {
            let detail = format!(
                "is more than the {} it may have at most",
                told(resource, *most)
            );
            faults.say(&resources.to("guaranteed").to(resource), detail);
        }
    }
    for (resource, max) in &queue.max {
        if let Some(above) = spot.max.get(resource).filter(|above| max > *above) {
            let detail = format!(
                "is more than the {} of the queue above",
                told(resource, *above)
            );
            faults.say(&resources.to("max").to(resource), detail);
        }
    }
    applications(spot, faults);
    guarantees(spot, faults);
    limits::check(spot, faults);
    let mut max = spot.max.clone();
    max.extend(queue.max.clone());
    let mut above = vec![queue];
    above.extend(&spot.limits);
    for (name, child) in &queue.children {
        let at = if spot.at.0.is_empty() {
            At::default().to("queues").to(name)
        } else {
            spot.at.to("queues").to(name)
        };
        let below = Spot {
            queue: child,
            at,
            max: max.clone(),
            applications: queue.max_applications.or(spot.applications),
            limits: above.clone(),
            level: spot.level + 1,
        };
        judge(&below, faults);
    }
}

fn applications(spot: &Spot, faults: &mut Faults) {
    let at = spot.at.to("max_applications");
    match (spot.applications, spot.queue.max_applications) {
        (Some(above), None) => {
            let detail = format!("is missing: the queue above has {above}, so use 1 to {above}");
            faults.say(&at, detail);
        }
        (Some(above), Some(own)) if own > above => {
            faults.say(&at, format!("is more than the {above} of the queue above"));
        }
        _ => {}
    }
}

/// What all below are guaranteed is guaranteed here, or could be had here.
fn guarantees(spot: &Spot, faults: &mut Faults) {
    let mut sums = Amounts::new();
    for child in spot.queue.children.values() {
        for (resource, amount) in promised(child) {
            let sum = sums.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    for (resource, sum) in sums {
        let queue = spot.queue;
        let own = queue.guaranteed.get(&resource);
        let most = own.or(queue.max.get(&resource)).or(spot.max.get(&resource));
        if let Some(most) = most.filter(|most| sum > **most) {
            let what = if own.is_some() {
                "guaranteed itself"
            } else {
                "allowed at most"
            };
            let (sum, most) = (told(&resource, sum), told(&resource, *most));
            let detail =
                format!("queues below are guaranteed {sum} {resource}, it is {what} {most}");
            faults.say(&spot.at.to("resources").to("guaranteed"), detail);
        }
    }
}

/// Its own guarantee, or what is promised below it.
fn promised(queue: &Queue) -> Amounts {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for child in queue.children.values() {
        for (resource, amount) in promised(child) {
            let sum = all.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    all.extend(queue.guaranteed.clone());
    all
}
