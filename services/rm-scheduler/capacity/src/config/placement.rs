//! Validation of placement rules: queues that a rule names must exist.

use hayward_rm_scheduler_domain::snapshot::queues::{Queue, Queues};

use super::{
    At, Faults,
    document::{Kind, Rule},
};

pub(super) fn check(queues: &Queues, at: &At, rules: &[Rule], faults: &mut Faults) {
    for (index, rule) in rules.iter().enumerate() {
        check_rule(queues, &at.nth(index), rule, false, faults);
    }
}

/// Checks one rule. `above` is true for a parent rule: applications are placed below its queue.
fn check_rule(queues: &Queues, at: &At, rule: &Rule, above: bool, faults: &mut Faults) {
    let value = rule.value.as_deref().unwrap_or("").to_lowercase();
    if matches!(rule.by, Kind::Fixed | Kind::Tag) && value.is_empty() {
        let what = if rule.by == Kind::Fixed {
            "a queue"
        } else {
            "the name of a tag"
        };
        faults.add(&at.to("value"), format!("is missing; give {what}"));
        return;
    }
    let qualified = value == "root" || value.starts_with("root.");
    if let Some(parent) = &rule.parent {
        if rule.by == Kind::Fixed && qualified {
            let detail = "the value is already a full path; remove the parent or the `root.`";
            faults.add(&at.to("parent"), detail);
        }
        check_rule(queues, &at.to("parent"), parent, true, faults);
    }
    if rule.by != Kind::Fixed || (rule.parent.is_some() && !qualified) {
        return;
    }
    let path = if qualified {
        value
    } else {
        format!("root.{value}")
    };
    let target = Target {
        path: &path,
        may_create: rule.create,
        above,
    };
    check_target(queues, &target, &at.to("value"), faults);
}

/// The queue that a rule names.
struct Target<'a> {
    path: &'a str,
    may_create: bool,
    /// True if applications are placed below this queue.
    above: bool,
}

fn check_target(queues: &Queues, target: &Target, at: &At, faults: &mut Faults) {
    let path = target.path;
    let mut queue: &Queue = &queues.root;
    for name in path.split('.').skip(1) {
        match queue.children.get(name) {
            Some(child) => queue = child,
            None if !target.may_create => {
                let detail = format!("there is no queue {path}; add it, or allow its creation");
                faults.add(at, detail);
                return;
            }
            None if queue.is_leaf() => {
                let detail = format!("nothing can be created below a leaf on the way to {path}");
                faults.add(at, detail);
                return;
            }
            None => return,
        }
    }
    if queue.is_leaf() == target.above {
        let detail = if target.above {
            format!("queue {path} is a leaf, but queues are to be created below it")
        } else {
            format!("queue {path} is not a leaf; applications run in leaves")
        };
        faults.add(at, detail);
    }
}
