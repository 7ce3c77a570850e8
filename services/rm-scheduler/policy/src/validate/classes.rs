//! Validation of classes: complete after inheritance, in a pool, and consistent with each other.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::policy::{Class, Policy, SharePolicy};
use hayward_vocabulary::UserName;

use super::{MAX_CLASSES, amounts, check_name, list_existing};
use crate::definition_order;
use crate::fault::Faults;
use crate::inheritance::{Ancestry, AncestryError};

const MAX_WEIGHT: u64 = 1_000_000;

/// A class that can serve work, after inheritance.
struct ServingClass<'a> {
    name: &'a str,
    class: &'a Class,
    policy: SharePolicy,
    priority: i64,
}

pub(super) fn check(policy: &Policy, needs_defaults: bool, faults: &mut Faults) {
    if policy.classes.len() > MAX_CLASSES {
        faults.add(&["classes"], format!("must be at most {MAX_CLASSES}"));
        return;
    }
    let mut serving = Vec::new();
    let mut has_broken_ancestry = false;
    for (class_name, class) in definition_order::ordered_classes(policy) {
        check_name("classes", class_name, faults);
        check_own_attributes(policy, class_name, class, faults);
        match Ancestry::new(policy, class_name) {
            Ok(ancestry) => {
                check_allowed_attributes(class_name, class, &ancestry, faults);
                serving.extend(serving_class(policy, class_name, class, &ancestry));
                check_completeness(policy, class_name, class, &ancestry, faults);
            }
            Err(error) => {
                has_broken_ancestry = true;
                report_ancestry_error(policy, class_name, &error, faults);
            }
        }
    }
    check_priorities(&serving, faults);
    // A class with an unknown parent may be the default that seems to be missing.
    check_defaults(&serving, needs_defaults && !has_broken_ancestry, faults);
}

/// Reports a parent that does not exist, or a cycle of parents.
fn report_ancestry_error(policy: &Policy, name: &str, error: &AncestryError, faults: &mut Faults) {
    let path = ["classes", name, "parent"];
    match error {
        AncestryError::UnknownParent(parent) => {
            let others = policy.classes.keys().filter(|other| *other != name);
            let existing = list_existing(others.map(String::as_str));
            faults.add(&path, format!("there is no class {parent:?}: {existing}"));
        }
        AncestryError::Cycle => {
            faults.add(&path, "classes form a cycle: remove one of its parents");
        }
        AncestryError::BrokenAncestor => {}
    }
}

/// Checks the attributes of a class that do not depend on inheritance.
fn check_own_attributes(policy: &Policy, name: &str, class: &Class, faults: &mut Faults) {
    if class.is_abstract && class.default {
        let detail = "a template cannot serve work: use a class that is not abstract";
        faults.add(&["classes", name, "default"], detail);
    }
    if class.weight.is_some_and(|weight| weight > MAX_WEIGHT) {
        faults.add(
            &["classes", name, "weight"],
            format!("must be at most {MAX_WEIGHT}"),
        );
    }
    // A priority in which all weights are 0 would divide by zero.
    if class.weight == Some(0) {
        faults.add(&["classes", name, "weight"], "must be at least 1");
    }
    amounts::check_growth(
        name,
        class.initialization_cap,
        class.prediction_fudge_ms,
        faults,
    );
    amounts::check_wait_target(name, class.wait_target_s, faults);
    for (index, user) in class.users.iter().flatten().enumerate() {
        if let Err(error) = UserName::new(user.as_str()) {
            faults.add(
                &["classes", name, "users", &index.to_string()],
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
            let existing = list_existing(serving.map(|(name, _)| name.as_str()));
            let detail = format!("there is no class {debug:?}: {existing}");
            faults.add(&["classes", name, "debug"], detail);
        }
    }
}

/// Checks that the policy of the class allows its attributes.
fn check_allowed_attributes(name: &str, class: &Class, ancestry: &Ancestry, faults: &mut Faults) {
    use SharePolicy::{FairShare, FixedShare, Reserve};
    let Some(policy) = ancestry.policy() else {
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
                allowed.as_str(),
                policy.as_str()
            );
            faults.add(&["classes", name, attribute], detail);
        }
    }
}

fn serving_class<'a>(
    policy: &Policy,
    name: &'a str,
    class: &'a Class,
    ancestry: &Ancestry,
) -> Option<ServingClass<'a>> {
    let has_pool = policy.pools.contains_key(ancestry.pool()?);
    (has_pool && !class.is_abstract).then_some(ServingClass {
        name,
        class,
        policy: ancestry.policy()?,
        priority: ancestry.priority()?,
    })
}

/// Reports a missing policy or pool.
fn check_completeness(
    policy: &Policy,
    name: &str,
    class: &Class,
    ancestry: &Ancestry,
    faults: &mut Faults,
) {
    let pools = || list_existing(policy.pools.keys().map(String::as_str));
    match (ancestry.pool(), class.pool.as_deref()) {
        (_, Some(own)) if !policy.pools.contains_key(own) => {
            let detail = format!("there is no pool {own:?}: {}", pools());
            faults.add(&["classes", name, "pool"], detail);
        }
        // A missing pool of a parent is reported at the parent.
        (Some(_), _) => {}
        (None, _) if class.is_abstract => {}
        (None, _) => {
            let detail = format!("has no pool, and neither has a parent: {}", pools());
            faults.add(&["classes", name, "pool"], detail);
        }
    }
    if ancestry.policy().is_none() && !class.is_abstract {
        let detail = "has no policy, and neither has a parent: FAIR_SHARE, FIXED_SHARE or RESERVE";
        faults.add(&["classes", name, "policy"], detail);
    }
}

/// Checks that classes of equal priority have the same policy, in all trees.
fn check_priorities(serving: &[ServingClass], faults: &mut Faults) {
    let mut known: BTreeMap<i64, &ServingClass> = BTreeMap::new();
    for class in serving {
        let first = *known.entry(class.priority).or_insert(class);
        if first.policy != class.policy {
            let detail = format!(
                "class {:?} has priority {} too, and is {}: give them different priorities",
                first.name,
                class.priority,
                first.policy.as_str()
            );
            faults.add(&["classes", class.name, "priority"], detail);
        }
    }
}

/// Checks that no policy has two default classes. With `needs_defaults` each policy in use must
/// have one.
fn check_defaults(serving: &[ServingClass], needs_defaults: bool, faults: &mut Faults) {
    let mut known: BTreeMap<SharePolicy, &str> = BTreeMap::new();
    for class in serving.iter().filter(|class| class.class.default) {
        if let Some(first) = known.get(&class.policy) {
            let detail = format!(
                "class {first:?} is the default of {} already: keep one of the two",
                class.policy.as_str()
            );
            faults.add(&["classes", class.name, "default"], detail);
        } else {
            known.insert(class.policy, class.name);
        }
    }
    if !needs_defaults {
        return;
    }
    let used: BTreeSet<SharePolicy> = serving.iter().map(|class| class.policy).collect();
    for policy in used
        .into_iter()
        .filter(|policy| !known.contains_key(policy))
    {
        let detail = format!("no class is the default of {}: mark one", policy.as_str());
        faults.add(&["classes"], detail);
    }
}
