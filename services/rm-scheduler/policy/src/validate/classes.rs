//! Validation of classes: complete after inheritance, in a pool, and consistent with each other.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::policy::{Class, Policy, SharePolicy};
use hayward_vocabulary::UserName;

use super::{MAX_CLASSES, amounts, name, one_of};
use crate::definition_order;
use crate::fault::Faults;
use crate::inheritance::{Broken, Lineage};

const MAX_WEIGHT: u64 = 1_000_000;

/// A class that can serve work, after inheritance.
struct Serving<'a> {
    name: &'a str,
    class: &'a Class,
    policy: SharePolicy,
    priority: i64,
}

pub(super) fn check(policy: &Policy, needs_defaults: bool, faults: &mut Faults) {
    if policy.classes.len() > MAX_CLASSES {
        faults.say(&["classes"], format!("must be at most {MAX_CLASSES}"));
        return;
    }
    let mut serving = Vec::new();
    let mut broken = false;
    for (class_name, class) in definition_order::classes(policy) {
        name("classes", class_name, faults);
        alone(policy, class_name, class, faults);
        match Lineage::new(policy, class_name) {
            Ok(lineage) => {
                attributes(class_name, class, &lineage, faults);
                serving.extend(complete(policy, class_name, class, &lineage));
                incomplete(policy, class_name, class, &lineage, faults);
            }
            Err(fault) => {
                broken = true;
                no_parent(policy, class_name, &fault, faults);
            }
        }
    }
    priorities(&serving, faults);
    // If a parent is missing, the missing default may be the class that names it.
    defaults(&serving, needs_defaults && !broken, faults);
}

/// Reports a parent that does not exist.
fn no_parent(policy: &Policy, name: &str, fault: &Broken, faults: &mut Faults) {
    let at = ["classes", name, "parent"];
    match fault {
        Broken::Unknown(parent) => {
            let others = policy.classes.keys().filter(|other| *other != name);
            let there = one_of(others.map(String::as_str));
            faults.say(&at, format!("there is no class {parent:?}: {there}"));
        }
        Broken::Cycle => faults.say(&at, "classes form a cycle: remove one of its parents"),
        Broken::Above => {}
    }
}

/// Checks the attributes of a class that do not depend on inheritance.
fn alone(policy: &Policy, name: &str, class: &Class, faults: &mut Faults) {
    if class.is_abstract && class.default {
        let detail = "a template cannot serve work: use a class that is not abstract";
        faults.say(&["classes", name, "default"], detail);
    }
    if class.weight.is_some_and(|weight| weight > MAX_WEIGHT) {
        faults.say(
            &["classes", name, "weight"],
            format!("must be at most {MAX_WEIGHT}"),
        );
    }
    // A priority in which all weights are 0 would divide by zero.
    if class.weight == Some(0) {
        faults.say(&["classes", name, "weight"], "must be at least 1");
    }
    amounts::growth(
        name,
        class.initialization_cap,
        class.prediction_fudge_ms,
        faults,
    );
    amounts::wait_target(name, class.wait_target_s, faults);
    for (at, user) in class.users.iter().flatten().enumerate() {
        if let Err(error) = UserName::new(user.as_str()) {
            faults.say(
                &["classes", name, "users", &at.to_string()],
                error.to_string(),
            );
        }
    }
    if let Some(debug) = class.debug.as_deref() {
        let known = policy.classes.get(debug);
        if known.is_none_or(|known| known.is_abstract) {
            let serving = policy
                .classes
                .iter()
                .filter(|(_, known)| !known.is_abstract);
            let there = one_of(serving.map(|(name, _)| name.as_str()));
            let detail = format!("there is no class {debug:?}: {there}");
            faults.say(&["classes", name, "debug"], detail);
        }
    }
}

/// Checks that the policy of the class allows its attributes.
fn attributes(name: &str, class: &Class, lineage: &Lineage, faults: &mut Faults) {
    use SharePolicy::{FairShare, FixedShare, Reserve};
    let Some(policy) = lineage.policy() else {
        return;
    };
    let attributes = [
        ("weight", class.weight.is_some(), FairShare),
        ("debug", class.debug.is_some(), FairShare),
        (
            "initialization_cap",
            class.initialization_cap.is_some(),
            FairShare,
        ),
        (
            "expand_by_doubling",
            class.expand_by_doubling.is_some(),
            FairShare,
        ),
        ("use_prediction", class.use_prediction.is_some(), FairShare),
        (
            "prediction_fudge_ms",
            class.prediction_fudge_ms.is_some(),
            FairShare,
        ),
        ("enforce", class.enforce.is_some(), Reserve),
        ("max_processes", class.max_processes.is_some(), FixedShare),
        ("max_machines", class.max_machines.is_some(), Reserve),
    ];
    for (attribute, is_set, allowed) in attributes {
        if is_set && policy != allowed {
            let detail = format!(
                "is for {} classes, and this one is {}: remove it",
                allowed.word(),
                policy.word()
            );
            faults.say(&["classes", name, attribute], detail);
        }
    }
}

fn complete<'a>(
    policy: &Policy,
    name: &'a str,
    class: &'a Class,
    lineage: &Lineage,
) -> Option<Serving<'a>> {
    let at_home = policy.pools.contains_key(lineage.pool()?);
    (at_home && !class.is_abstract).then_some(Serving {
        name,
        class,
        policy: lineage.policy()?,
        priority: lineage.priority()?,
    })
}

/// Reports a missing policy or pool.
fn incomplete(policy: &Policy, name: &str, class: &Class, lineage: &Lineage, faults: &mut Faults) {
    let pools = || one_of(policy.pools.keys().map(String::as_str));
    match (lineage.pool(), class.pool.as_deref()) {
        (_, Some(own)) if !policy.pools.contains_key(own) => {
            let detail = format!("there is no pool {own:?}: {}", pools());
            faults.say(&["classes", name, "pool"], detail);
        }
        // A missing pool of a parent is reported at the parent.
        (Some(_), _) => {}
        (None, _) if class.is_abstract => {}
        (None, _) => {
            let detail = format!("has no pool, and neither has a parent: {}", pools());
            faults.say(&["classes", name, "pool"], detail);
        }
    }
    if lineage.policy().is_none() && !class.is_abstract {
        let detail = "has no policy, and neither has a parent: FAIR_SHARE, FIXED_SHARE or RESERVE";
        faults.say(&["classes", name, "policy"], detail);
    }
}

/// Checks that classes of equal priority have the same policy, in all trees.
fn priorities(serving: &[Serving], faults: &mut Faults) {
    let mut found: BTreeMap<i64, &Serving> = BTreeMap::new();
    for class in serving {
        let first = *found.entry(class.priority).or_insert(class);
        if first.policy != class.policy {
            let detail = format!(
                "class {:?} has priority {} too, and is {}: give them different priorities",
                first.name,
                class.priority,
                first.policy.word()
            );
            faults.say(&["classes", class.name, "priority"], detail);
        }
    }
}

/// Checks that each policy in use has exactly one default class.
fn defaults(serving: &[Serving], needed: bool, faults: &mut Faults) {
    let mut found: BTreeMap<SharePolicy, &str> = BTreeMap::new();
    for class in serving.iter().filter(|class| class.class.default) {
        if let Some(first) = found.get(&class.policy) {
            let detail = format!(
                "class {first:?} is the default of {} already: keep one of the two",
                class.policy.word()
            );
            faults.say(&["classes", class.name, "default"], detail);
        } else {
            found.insert(class.policy, class.name);
        }
    }
    if !needed {
        return;
    }
    let used: BTreeSet<SharePolicy> = serving.iter().map(|class| class.policy).collect();
    for policy in used
        .into_iter()
        .filter(|policy| !found.contains_key(policy))
    {
        let detail = format!("no class is the default of {}: mark one", policy.word());
        faults.say(&["classes"], detail);
    }
}
