//! Translates the document into the queues of the snapshot.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::snapshot::queues::{self, Amounts, By, Queues};
use serde_json::Value;

use super::{
    At, Faults, acl,
    document::{Document, Filter, Kind, Limit, Pass, PriorityPolicy, Queue, Rule, Template},
};
use crate::amount;

pub(super) const ROOT: &str = "root";

/// Returns true if the only top queue is called `root`. Otherwise a root is implied.
pub(super) fn is_rooted(document: &Document) -> bool {
    let mut names = document.queues.keys();
    document.queues.len() == 1 && names.any(|name| name.eq_ignore_ascii_case(ROOT))
}

pub(super) fn queues(document: &Document, faults: &mut Faults) -> Queues {
    let at = At::default();
    let mut children = children(&document.queues, &at.to("queues"), faults);
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
        root.limits = limits(&document.limits, &at.to("limits"), faults);
    }
    let default = Queues::default();
    let weights = at.to("node_sort").to("weights");
    Queues {
        root,
        placement: rules(&document.placement),
        node_sort: document.node_sort.policy,
        weights: plain(&document.node_sort.weights, &weights, faults),
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

fn children(
    written: &BTreeMap<String, Queue>,
    at: &At,
    faults: &mut Faults,
) -> BTreeMap<String, queues::Queue> {
    let mut all: BTreeMap<String, queues::Queue> = BTreeMap::new();
    for (name, queue) in written {
        let here = at.to(name);
        check_name(name, &here, faults);
        let read = one(queue, &here, faults);
        if all.insert(name.to_lowercase(), read).is_some() {
            let detail = format!("queue {name:?} appears twice; names are compared without case");
            faults.add(&here, detail);
        }
    }
    all
}

fn check_name(name: &str, at: &At, faults: &mut Faults) {
    let good = |it: char| it.is_ascii_alphanumeric() || "_:#/@-".contains(it);
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
        let detail = "is not a valid queue name; use 1 to 64 letters, digits or _ : # / @ -";
        faults.add(at, detail);
    }
}

fn one(queue: &Queue, at: &At, faults: &mut Faults) -> queues::Queue {
    let resources = at.to("resources");
    queues::Queue {
        children: children(&queue.queues, &at.to("queues"), faults),
        parent: queue.parent || !queue.queues.is_empty(),
        max: amounts(&queue.resources.max, &resources.to("max"), faults),
        guaranteed: amounts(
            &queue.resources.guaranteed,
            &resources.to("guaranteed"),
            faults,
        ),
        max_applications: Some(queue.max_applications).filter(|most| *most > 0),
        submit: acl::read(&queue.submit_acl, &at.to("submit_acl"), faults),
        admin: acl::read(&queue.admin_acl, &at.to("admin_acl"), faults),
        sort: queue.sort,
        sort_by_priority: queue.sort_by_priority,
        backoff_asks: queue.backoff_asks,
        backoff_ms: queue.backoff_ms,
        preemption_delay_ms: queue.preemption_delay_ms,
        quota_preemption_delay_ms: queue.quota_preemption_delay_ms,
        priority_fence: queue.priority_policy == PriorityPolicy::Fence,
        priority_offset: queue.priority_offset,
        preemption: queue.preemption,
        limits: limits(&queue.limits, &at.to("limits"), faults),
        template: queue
            .child_template
            .as_ref()
            .map(|it| template(it, &at.to("child_template"), faults)),
        draining: false,
        drained_at: None,
    }
}

fn template(template: &Template, at: &At, faults: &mut Faults) -> queues::Template {
    let resources = at.to("resources");
    queues::Template {
        max: amounts(&template.resources.max, &resources.to("max"), faults),
        guaranteed: amounts(
            &template.resources.guaranteed,
            &resources.to("guaranteed"),
            faults,
        ),
        max_applications: Some(template.max_applications).filter(|most| *most > 0),
        sort: template.sort,
    }
}

fn limits(written: &[Limit], at: &At, faults: &mut Faults) -> Vec<queues::Limit> {
    let limits = written.iter().enumerate().map(|(index, limit)| {
        let at = at.nth(index).to("max_resources");
        queues::Limit {
            users: limit.users.clone(),
            groups: limit.groups.clone(),
            max: amounts(&limit.max_resources, &at, faults),
            max_applications: Some(limit.max_applications).filter(|most| *most > 0),
        }
    });
    limits.collect()
}

fn amounts(value: &Value, at: &At, faults: &mut Faults) -> Amounts {
    if value.is_null() {
        return Amounts::new();
    }
    let (amounts, wrong) = amount::amounts(value);
    for (name, detail) in wrong {
        let at = if name.is_empty() {
            at.clone()
        } else {
            at.to(&name)
        };
        faults.add(&at, detail);
    }
    amounts
}

/// Parses plain numbers by type.
fn plain(value: &Value, at: &At, faults: &mut Faults) -> Amounts {
    let mut all = Amounts::new();
    let fields = value.as_object();
    if fields.is_none() && !value.is_null() {
        faults.add(
            at,
            "must be a map of weights by type, such as {\"memory\": 1}",
        );
    }
    for (name, value) in fields.into_iter().flatten() {
        match value.as_u64().filter(|weight| *weight <= 1_000_000) {
            Some(weight) => {
                all.insert(name.clone(), weight);
            }
            None => faults.add(
                &at.to(name),
                "is not a weight; use a whole number from 0 to 1000000",
            ),
        }
    }
    all
}

fn rules(written: &[Rule]) -> Vec<queues::Rule> {
    written.iter().map(rule).collect()
}

fn rule(written: &Rule) -> queues::Rule {
    let value = written.value.clone().unwrap_or_default();
    let filter = |filter: &Filter| queues::Filter {
        allow: filter.kind == Pass::Allow,
        users: filter.users.clone(),
        groups: filter.groups.clone(),
    };
    queues::Rule {
        by: match written.by {
            Kind::Provided => By::Provided,
            Kind::User => By::User,
            Kind::Fixed => By::Fixed(value.to_lowercase()),
            Kind::Tag => By::Tag(value),
        },
        create: written.create,
        parent: written.parent.as_deref().map(|it| Box::new(rule(it))),
        filter: written.filter.as_ref().map(filter),
    }
}
