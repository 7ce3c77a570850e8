//! Translates the document into the queues of the snapshot.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{self, Amounts, QueueSource, Queues};
use serde_json::Value;

use super::{
    Faults, JsonPointer, acl,
    document::{
        Document, Filter, FilterKind, Limit, PriorityPolicy, Queue, Rule, RuleKind, Template,
    },
};
use crate::amount;

pub(super) const ROOT: &str = "root";

/// Returns true if the only top queue is called `root`. Otherwise a root is implied.
pub(super) fn is_rooted(document: &Document) -> bool {
    let mut names = document.queues.keys();
    document.queues.len() == 1 && names.any(|name| name.eq_ignore_ascii_case(ROOT))
}

pub(super) fn translate(document: &Document, faults: &mut Faults) -> Queues {
    let pointer = JsonPointer::default();
    let mut children = translate_children(&document.queues, &pointer.child("queues"), faults);
    let mut root = if is_rooted(document) {
        children.remove(ROOT).unwrap_or_default()
    } else {
        queues::Queue {
            children,
            ..queues::Queue::default()
        }
    };
    root.parent = true;
    if root.limits.is_empty() {
        root.limits = translate_limits(&document.limits, &pointer.child("limits"), faults);
    }
    let default = Queues::default();
    let weights = pointer.child("node_sort").child("weights");
    Queues {
        root,
        placement: translate_rules(&document.placement),
        node_sort: document.node_sort.policy,
        weights: translate_weights(&document.node_sort.weights, &weights, faults),
        preemption: document.preemption.unwrap_or(default.preemption),
        quota_preemption: document
            .quota_preemption
            .unwrap_or(default.quota_preemption),
        preemption_cooldown_ms: document
            .preemption_cooldown_ms
            .unwrap_or(default.preemption_cooldown_ms),
        reservation_ms: document.reservation_ms.unwrap_or(default.reservation_ms),
    }
}

fn translate_children(
    entries: &BTreeMap<String, Queue>,
    pointer: &JsonPointer,
    faults: &mut Faults,
) -> BTreeMap<String, queues::Queue> {
    let mut queues: BTreeMap<String, queues::Queue> = BTreeMap::new();
    for (name, queue) in entries {
        let child_pointer = pointer.child(name);
        check_name(name, &child_pointer, faults);
        let translated = translate_queue(queue, &child_pointer, faults);
        if queues.insert(name.to_lowercase(), translated).is_some() {
            let detail = format!("queue {name:?} appears twice; names are compared without case");
            faults.add(&child_pointer, detail);
        }
    }
    queues
}

fn check_name(name: &str, pointer: &JsonPointer, faults: &mut Faults) {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "_:#/@-".contains(it);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_allowed) {
        let detail = "is not a valid queue name; use 1 to 64 letters, digits or _ : # / @ -";
        faults.add(pointer, detail);
    }
}

fn translate_queue(queue: &Queue, pointer: &JsonPointer, faults: &mut Faults) -> queues::Queue {
    let resources = pointer.child("resources");
    queues::Queue {
        children: translate_children(&queue.queues, &pointer.child("queues"), faults),
        parent: queue.parent || !queue.queues.is_empty(),
        max: translate_amounts(&queue.resources.max, &resources.child("max"), faults),
        guaranteed: translate_amounts(
            &queue.resources.guaranteed,
            &resources.child("guaranteed"),
            faults,
        ),
        max_applications: Some(queue.max_applications).filter(|limit| *limit > 0),
        submit: acl::read(&queue.submit_acl, &pointer.child("submit_acl"), faults),
        admin: acl::read(&queue.admin_acl, &pointer.child("admin_acl"), faults),
        sort: queue.sort,
        sort_by_priority: queue.sort_by_priority,
        backoff_asks: queue.backoff_asks,
        backoff_ms: queue.backoff_ms,
        preemption_delay_ms: queue.preemption_delay_ms,
        quota_preemption_delay_ms: queue.quota_preemption_delay_ms,
        priority_fence: queue.priority_policy == PriorityPolicy::Fence,
        priority_offset: queue.priority_offset,
        preemption: queue.preemption,
        limits: translate_limits(&queue.limits, &pointer.child("limits"), faults),
        template: queue
            .child_template
            .as_ref()
            .map(|it| translate_template(it, &pointer.child("child_template"), faults)),
        draining: false,
        drain_began_at: None,
    }
}

fn translate_template(
    template: &Template,
    pointer: &JsonPointer,
    faults: &mut Faults,
) -> queues::Template {
    let resources = pointer.child("resources");
    queues::Template {
        max: translate_amounts(&template.resources.max, &resources.child("max"), faults),
        guaranteed: translate_amounts(
            &template.resources.guaranteed,
            &resources.child("guaranteed"),
            faults,
        ),
        max_applications: Some(template.max_applications).filter(|limit| *limit > 0),
        sort: template.sort,
    }
}

fn translate_limits(
    entries: &[Limit],
    pointer: &JsonPointer,
    faults: &mut Faults,
) -> Vec<queues::Limit> {
    let limits = entries.iter().enumerate().map(|(index, limit)| {
        let pointer = pointer.item(index).child("max_resources");
        queues::Limit {
            users: limit.users.clone(),
            groups: limit.groups.clone(),
            max: translate_amounts(&limit.max_resources, &pointer, faults),
            max_applications: Some(limit.max_applications).filter(|max| *max > 0),
        }
    });
    limits.collect()
}

fn translate_amounts(value: &Value, pointer: &JsonPointer, faults: &mut Faults) -> Amounts {
    if value.is_null() {
        return Amounts::new();
    }
    let (amounts, faulty) = amount::parse_amounts(value);
    for (name, detail) in faulty {
        let pointer = if name.is_empty() {
            pointer.clone()
        } else {
            pointer.child(&name)
        };
        faults.add(&pointer, detail);
    }
    amounts
}

/// Parses weights by resource type. A weight is a plain number.
fn translate_weights(value: &Value, pointer: &JsonPointer, faults: &mut Faults) -> Amounts {
    let mut weights = Amounts::new();
    let fields = value.as_object();
    if fields.is_none() && !value.is_null() {
        faults.add(
            pointer,
            "must be a map of weights by type, such as {\"memory\": 1}",
        );
    }
    for (name, value) in fields.into_iter().flatten() {
        match value.as_u64().filter(|weight| *weight <= 1_000_000) {
            Some(weight) => {
                weights.insert(name.clone(), weight);
            }
            None => faults.add(
                &pointer.child(name),
                "is not a weight; use a whole number from 0 to 1000000",
            ),
        }
    }
    weights
}

fn translate_rules(rules: &[Rule]) -> Vec<queues::Rule> {
    rules.iter().map(translate_rule).collect()
}

fn translate_rule(rule: &Rule) -> queues::Rule {
    let value = rule.value.clone().unwrap_or_default();
    let filter = |filter: &Filter| queues::Filter {
        allow: filter.kind == FilterKind::Allow,
        users: filter.users.clone(),
        groups: filter.groups.clone(),
    };
    queues::Rule {
        source: match rule.kind {
            RuleKind::Provided => QueueSource::Provided,
            RuleKind::User => QueueSource::User,
            RuleKind::Fixed => QueueSource::Fixed(value.to_lowercase()),
            RuleKind::Tag => QueueSource::Tag(value),
        },
        create: rule.create,
        parent: rule
            .parent
            .as_deref()
            .map(|it| Box::new(translate_rule(it))),
        filter: rule.filter.as_ref().map(filter),
    }
}
