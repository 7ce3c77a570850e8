//! Validation of the queue tree, after parsing.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{Amounts, Queue, Queues};

use super::{
    Faults, JsonPointer,
    document::Document,
    inherited_queue::InheritedQueue,
    limits, placement_rules,
    translate::{ROOT, is_rooted},
};
use crate::amount::amount_text;

/// Maximum numbers of queues and of levels, because every round visits the whole tree.
const MAX_QUEUES: usize = 10_000;
const MAX_LEVELS: usize = 20;

/// Checks the queues, their limits and the placement rules.
pub(super) fn check(document: &Document, queues: &Queues, faults: &mut Faults) {
    let queues_pointer = JsonPointer::default().child("queues");
    if document.queues.is_empty() {
        faults.add(
            &queues_pointer,
            "needs at least one queue, as in {\"default\": {}}",
        );
        return;
    }
    if count_queues(&queues.root) > MAX_QUEUES {
        faults.add(
            &queues_pointer,
            format!("has more than {MAX_QUEUES} queues"),
        );
        return;
    }
    let root = InheritedQueue {
        queue: &queues.root,
        pointer: if is_rooted(document) {
            root_pointer(document, &queues_pointer)
        } else {
            JsonPointer::default()
        },
        max: Amounts::new(),
        max_applications: None,
        ancestors: Vec::new(),
        level: 1,
    };
    let resources = root.pointer.child("resources");
    if !(queues.root.max.is_empty() && queues.root.guaranteed.is_empty()) {
        faults.add(
            &resources,
            "the root has the resources of its nodes; remove its own",
        );
    }
    if !document.limits.is_empty() && is_rooted(document) {
        let root_limits = document.queues.values().next().map(|root| &root.limits);
        if root_limits
            .is_some_and(|root_limits| !root_limits.is_empty() && *root_limits != document.limits)
        {
            let detail = "differ from those of the root; define them in one place";
            faults.add(&JsonPointer::default().child("limits"), detail);
        }
    }
    check_queue(&root, faults);
    placement_rules::check(
        queues,
        &JsonPointer::default().child("placement"),
        &document.placement,
        faults,
    );
}

/// Returns the pointer of the configured root. Its name may be written in any case.
fn root_pointer(document: &Document, queues_pointer: &JsonPointer) -> JsonPointer {
    let name = document.queues.keys().next();
    queues_pointer.child(name.map_or(ROOT, String::as_str))
}

fn count_queues(queue: &Queue) -> usize {
    1 + queue.children.values().map(count_queues).sum::<usize>()
}

fn check_queue(inherited: &InheritedQueue, faults: &mut Faults) {
    if inherited.level > MAX_LEVELS {
        faults.add(
            &inherited.pointer,
            format!("is deeper than {MAX_LEVELS} levels"),
        );
        return;
    }
    let queue = inherited.queue;
    let resources = inherited.pointer.child("resources");
    for (resource, guaranteed) in &queue.guaranteed {
        let max = queue.max.get(resource).or(inherited.max.get(resource));
        if let Some(max) = max.filter(|max| guaranteed > *max) {
            let detail = format!(
                "is more than the {} it may have at most",
                amount_text(resource, *max)
            );
            faults.add(&resources.child("guaranteed").child(resource), detail);
        }
    }
    for (resource, max) in &queue.max {
        if let Some(parent_max) = inherited
            .max
            .get(resource)
            .filter(|parent_max| max > *parent_max)
        {
            let detail = format!(
                "is more than the {} of the queue above",
                amount_text(resource, *parent_max)
            );
            faults.add(&resources.child("max").child(resource), detail);
        }
    }
    check_max_applications(inherited, faults);
    check_guarantees(inherited, faults);
    limits::check(inherited, faults);
    let mut max = inherited.max.clone();
    max.extend(queue.max.clone());
    let mut ancestors = vec![queue];
    ancestors.extend(&inherited.ancestors);
    for (name, child) in &queue.children {
        let pointer = if inherited.pointer.0.is_empty() {
            JsonPointer::default().child("queues").child(name)
        } else {
            inherited.pointer.child("queues").child(name)
        };
        let inherited_child = InheritedQueue {
            queue: child,
            pointer,
            max: max.clone(),
            max_applications: queue.max_applications.or(inherited.max_applications),
            ancestors: ancestors.clone(),
            level: inherited.level + 1,
        };
        check_queue(&inherited_child, faults);
    }
}

fn check_max_applications(inherited: &InheritedQueue, faults: &mut Faults) {
    let pointer = inherited.pointer.child("max_applications");
    match (inherited.max_applications, inherited.queue.max_applications) {
        (Some(above), None) => {
            let detail = format!("is missing: the queue above has {above}, so use 1 to {above}");
            faults.add(&pointer, detail);
        }
        (Some(above), Some(own_max)) if own_max > above => {
            faults.add(
                &pointer,
                format!("is more than the {above} of the queue above"),
            );
        }
        _ => {}
    }
}

/// Checks that the guarantees of the children fit the guarantee, or else the maximum, of the queue.
fn check_guarantees(inherited: &InheritedQueue, faults: &mut Faults) {
    let mut sums = Amounts::new();
    for child in inherited.queue.children.values() {
        for (resource, amount) in effective_guarantee(child) {
            let sum = sums.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    for (resource, sum) in sums {
        let queue = inherited.queue;
        let own_guarantee = queue.guaranteed.get(&resource);
        let max = own_guarantee
            .or(queue.max.get(&resource))
            .or(inherited.max.get(&resource));
        if let Some(max) = max.filter(|max| sum > **max) {
            let kind = if own_guarantee.is_some() {
                "guaranteed itself"
            } else {
                "allowed at most"
            };
            let (sum, max) = (amount_text(&resource, sum), amount_text(&resource, *max));
            let detail =
                format!("queues below are guaranteed {sum} {resource}, it is {kind} {max}");
            faults.add(
                &inherited.pointer.child("resources").child("guaranteed"),
                detail,
            );
        }
    }
}

/// Returns the guarantee of the queue by type: its own, or else the sum of those of its children.
fn effective_guarantee(queue: &Queue) -> Amounts {
    let mut guarantees: BTreeMap<String, u64> = BTreeMap::new();
    for child in queue.children.values() {
        for (resource, amount) in effective_guarantee(child) {
            let sum = guarantees.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    guarantees.extend(queue.guaranteed.clone());
    guarantees
}
