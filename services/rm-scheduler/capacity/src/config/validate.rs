//! Validation of the queue tree, after parsing.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{Amounts, Queue, Queues};

use super::{
    At, Faults,
    document::Document,
    inherited_queue::InheritedQueue,
    limits, placement,
    translate::{ROOT, is_rooted},
};
use crate::amount::amount_text;

/// Most queues and levels; every round walks the tree.
const MAX_QUEUES: usize = 10_000;
const MAX_LEVELS: usize = 20;

pub(super) fn all(document: &Document, queues: &Queues, faults: &mut Faults) {
    let top = At::default().to("queues");
    if document.queues.is_empty() {
        faults.add(&top, "needs at least one queue, as in {\"default\": {}}");
        return;
    }
    if count(&queues.root) > MAX_QUEUES {
        faults.add(&top, format!("has more than {MAX_QUEUES} queues"));
        return;
    }
    let root = InheritedQueue {
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
        faults.add(
            &resources,
            "the root has the resources of its nodes; remove its own",
        );
    }
    if !document.limits.is_empty() && is_rooted(document) {
        let own = document.queues.values().next().map(|root| &root.limits);
        if own.is_some_and(|own| !own.is_empty() && *own != document.limits) {
            let detail = "differ from those of the root; define them in one place";
            faults.add(&At::default().to("limits"), detail);
        }
    }
    check_queue(&root, faults);
    placement::check(
        queues,
        &At::default().to("placement"),
        &document.placement,
        faults,
    );
}

/// Returns the position of the root in the document, written or implied.
fn names(document: &Document, top: &At) -> At {
    let name = document.queues.keys().next();
    top.to(name.map_or(ROOT, String::as_str))
}

fn count(queue: &Queue) -> usize {
    1 + queue.children.values().map(count).sum::<usize>()
}

fn check_queue(inherited: &InheritedQueue, faults: &mut Faults) {
    if inherited.level > MAX_LEVELS {
        faults.add(&inherited.at, format!("is deeper than {MAX_LEVELS} levels"));
        return;
    }
    let queue = inherited.queue;
    let resources = inherited.at.to("resources");
    for (resource, guaranteed) in &queue.guaranteed {
        let most = queue.max.get(resource).or(inherited.max.get(resource));
        if let Some(most) = most.filter(|most| guaranteed > *most) {
            let detail = format!(
                "is more than the {} it may have at most",
                amount_text(resource, *most)
            );
            faults.add(&resources.to("guaranteed").to(resource), detail);
        }
    }
    for (resource, max) in &queue.max {
        if let Some(above) = inherited.max.get(resource).filter(|above| max > *above) {
            let detail = format!(
                "is more than the {} of the queue above",
                amount_text(resource, *above)
            );
            faults.add(&resources.to("max").to(resource), detail);
        }
    }
    applications(inherited, faults);
    guarantees(inherited, faults);
    limits::check(inherited, faults);
    let mut max = inherited.max.clone();
    max.extend(queue.max.clone());
    let mut above = vec![queue];
    above.extend(&inherited.limits);
    for (name, child) in &queue.children {
        let at = if inherited.at.0.is_empty() {
            At::default().to("queues").to(name)
        } else {
            inherited.at.to("queues").to(name)
        };
        let below = InheritedQueue {
            queue: child,
            at,
            max: max.clone(),
            applications: queue.max_applications.or(inherited.applications),
            limits: above.clone(),
            level: inherited.level + 1,
        };
        check_queue(&below, faults);
    }
}

fn applications(inherited: &InheritedQueue, faults: &mut Faults) {
    let at = inherited.at.to("max_applications");
    match (inherited.applications, inherited.queue.max_applications) {
        (Some(above), None) => {
            let detail = format!("is missing: the queue above has {above}, so use 1 to {above}");
            faults.add(&at, detail);
        }
        (Some(above), Some(own)) if own > above => {
            faults.add(&at, format!("is more than the {above} of the queue above"));
        }
        _ => {}
    }
}

/// Checks that the guarantees of the children fit the guarantee, or else the maximum, of the queue.
fn guarantees(inherited: &InheritedQueue, faults: &mut Faults) {
    let mut sums = Amounts::new();
    for child in inherited.queue.children.values() {
        for (resource, amount) in promised(child) {
            let sum = sums.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    for (resource, sum) in sums {
        let queue = inherited.queue;
        let own = queue.guaranteed.get(&resource);
        let most = own
            .or(queue.max.get(&resource))
            .or(inherited.max.get(&resource));
        if let Some(most) = most.filter(|most| sum > **most) {
            let what = if own.is_some() {
                "guaranteed itself"
            } else {
                "allowed at most"
            };
            let (sum, most) = (amount_text(&resource, sum), amount_text(&resource, *most));
            let detail =
                format!("queues below are guaranteed {sum} {resource}, it is {what} {most}");
            faults.add(&inherited.at.to("resources").to("guaranteed"), detail);
        }
    }
}

/// Returns the guarantee of the queue by type: its own, or else the sum of those of its children.
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
