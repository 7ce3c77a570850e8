//! Validation of placement rules, which assign applications to queues. Queues that a rule names
//! must exist, unless the rule may create them.

use hayward_rm_scheduler_domain::snapshot::queues::{Queue, Queues};

use super::{
    Faults, JsonPointer,
    document::{Rule, RuleKind},
};

pub(super) fn check(queues: &Queues, pointer: &JsonPointer, rules: &[Rule], faults: &mut Faults) {
    for (index, rule) in rules.iter().enumerate() {
        check_rule(queues, &pointer.item(index), rule, false, faults);
    }
}

/// Checks one rule. `is_parent` is true for a parent rule: applications are placed below the queue
/// that it names.
fn check_rule(
    queues: &Queues,
    pointer: &JsonPointer,
    rule: &Rule,
    is_parent: bool,
    faults: &mut Faults,
) {
    let value = rule.value.as_deref().unwrap_or("").to_lowercase();
    if matches!(rule.kind, RuleKind::Fixed | RuleKind::Tag) && value.is_empty() {
        let expected = if rule.kind == RuleKind::Fixed {
            "a queue"
        } else {
            "the name of a tag"
        };
        faults.add(
            &pointer.child("value"),
            format!("is missing; give {expected}"),
        );
        return;
    }
    let is_full_path = value == "root" || value.starts_with("root.");
    if let Some(parent) = &rule.parent {
        if rule.kind == RuleKind::Fixed && is_full_path {
            let detail = "the value is already a full path; remove the parent or the `root.`";
            faults.add(&pointer.child("parent"), detail);
        }
        check_rule(queues, &pointer.child("parent"), parent, true, faults);
    }
    if rule.kind != RuleKind::Fixed || (rule.parent.is_some() && !is_full_path) {
        return;
    }
    let path = if is_full_path {
        value
    } else {
        format!("root.{value}")
    };
    let target = Target {
        path: &path,
        may_create: rule.create,
        is_parent,
    };
    check_target(queues, &target, &pointer.child("value"), faults);
}

/// The queue that a rule names.
struct Target<'a> {
    path: &'a str,
    may_create: bool,
    /// True if applications are placed below this queue.
    is_parent: bool,
}

fn check_target(queues: &Queues, target: &Target, pointer: &JsonPointer, faults: &mut Faults) {
    let path = target.path;
    let mut queue: &Queue = &queues.root;
    for name in path.split('.').skip(1) {
        match queue.children.get(name) {
            Some(child) => queue = child,
            None if !target.may_create => {
                let detail = format!("there is no queue {path}; add it, or allow its creation");
                faults.add(pointer, detail);
                return;
            }
            None if queue.is_leaf() => {
                let detail = format!("nothing can be created below a leaf on the way to {path}");
                faults.add(pointer, detail);
                return;
            }
            None => return,
        }
    }
    if queue.is_leaf() == target.is_parent {
        let detail = if target.is_parent {
            format!("queue {path} is a leaf, but queues are to be created below it")
        } else {
            format!("queue {path} is not a leaf; applications run in leaves")
        };
        faults.add(pointer, detail);
    }
}
