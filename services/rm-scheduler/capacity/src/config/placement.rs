//! Validation of placement rules: queues that a rule names must exist.

use hayward_rm_scheduler_domain::snapshot::queues::{Queue, Queues};

use super::{
    At, Faults,
    document::{Kind, Rule},
};

pub(super) fn check(queues: &Queues, at: &At, rules: &[Rule], faults: &mut Faults) {
    for (index, rule) in rules.iter().enumerate() {
        one(queues, &at.nth(index), (rule, false), faults);
    }
}

/// `above` is true for a parent rule: applications are placed below its queue.
fn one(queues: &Queues, at: &At, (rule, above): (&Rule, bool), faults: &mut Faults) {
    let value = rule.value.as_deref().unwrap_or("").to_lowercase();
    if matches!(rule.by, Kind::Fixed | Kind::Tag) && value.is_empty() {
        let what = if rule.by == Kind::Fixed {
            "a queue"
        } else {
            "the name of a tag"
        };
        faults.say(&at.to("value"), format!("is missing; give {what}"));
        return;
    }
    let qualified = value == "root" || value.starts_with("root.");
    if let Some(parent) = &rule.parent {
        if rule.by == Kind::Fixed && qualified {
            let detail = "the value is already a full path; remove the parent or the `root.`";
            faults.say(&at.to("parent"), detail);
        }
        one(queues, &at.to("parent"), (parent, true), faults);
    }
    if rule.by != Kind::Fixed || (rule.parent.is_some() && !qualified) {
        return;
    }
    let path = if qualified {
        value
    } else {
        format!("root.{value}")
    };
    target(queues, (&path, rule.create, above), &at.to("value"), faults);
}

fn target(
    queues: &Queues,
    (path, create, above): (&str, bool, bool),
    at: &At,
    faults: &mut Faults,
) {
    let mut queue: &Queue = &queues.root;
    for name in path.split('.').skip(1) {
        match queue.children.get(name) {
            Some(child) => queue = child,
            None if !create => {
                let detail = format!("there is no queue {path}; add it, or allow its creation");
                faults.say(at, detail);
                return;
            }
            None if queue.is_leaf() => {
                let detail = format!("nothing can be created below a leaf on the way to {path}");
                faults.say(at, detail);
                return;
            }
            None => return,
        }
    }
    if queue.is_leaf() == above {
        let detail = if above {
            format!("queue {path} is a leaf, but queues are to be created below it")
        } else {
            format!("queue {path} is not a leaf; applications run in leaves")
        };
        faults.say(at, detail);
    }
}
