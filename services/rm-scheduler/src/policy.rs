//! What makes a policy document acceptable (fair-share 3.4, as far as the document can say it).
//! Pure; all faults at once, each with a JSON pointer.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_api::policy::{Class, Policy, SharePolicy};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer into the document.
    pub pointer: String,
    pub detail: String,
}

fn fault(pointer: String, detail: impl Into<String>) -> Fault {
    Fault {
        pointer,
        detail: detail.into(),
    }
}

/// `in_use` are the classes that work names at the moment; none of them may go (F44).
pub fn faults(policy: &Policy, in_use: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    if policy.quantum.0.memory_bytes == 0 {
        faults.push(fault(
            "/quantum/memory_bytes".into(),
            "must be at least 1 byte",
        ));
    }
    pools(policy, &mut faults);
    for (name, class) in &policy.classes {
        one_class(policy, name, class, &mut faults);
    }
    defaults(policy, &mut faults);
    priorities(policy, &mut faults);
    for class in in_use
        .iter()
        .filter(|class| !policy.classes.contains_key(*class))
    {
        faults.push(fault(
            format!("/classes/{class}"),
            "is in use; end or move its work before removing the class",
        ));
    }
    faults
}

fn pools(policy: &Policy, faults: &mut Vec<Fault>) {
    if policy.pools.is_empty() {
        faults.push(fault("/pools".into(), "needs at least one pool"));
    }
    for (name, pool) in &policy.pools {
        let pointer = format!("/pools/{name}/parent");
        let mut seen = BTreeSet::from([name.as_str()]);
        let mut above = pool.parent.as_deref();
        while let Some(parent) = above {
            if !seen.insert(parent) {
                faults.push(fault(pointer.clone(), "pools form a cycle"));
                break;
            }
            let Some(next) = policy.pools.get(parent) else {
                faults.push(fault(
                    pointer.clone(),
                    format!("there is no pool {parent:?}"),
                ));
                break;
            };
            above = next.parent.as_deref();
        }
    }
}

fn one_class(policy: &Policy, name: &str, class: &Class, faults: &mut Vec<Fault>) {
    let at = |field: &str| format!("/classes/{name}/{field}");
    if !policy.pools.contains_key(&class.pool) {
        faults.push(fault(
            at("pool"),
            format!("there is no pool {:?}", class.pool),
        ));
    }
    if class.policy == SharePolicy::FairShare && class.weight == 0 {
        faults.push(fault(at("weight"), "must be at least 1"));
    }
    if class.weight > 1_000_000 {
        faults.push(fault(at("weight"), "must be at most 1000000"));
    }
}

/// 3.4.11: at most one default per policy.
fn defaults(policy: &Policy, faults: &mut Vec<Fault>) {
    let mut found: BTreeMap<String, &str> = BTreeMap::new();
    for (name, class) in policy.classes.iter().filter(|(_, class)| class.default) {
        if let Some(first) = found.insert(format!("{:?}", class.policy), name) {
            faults.push(fault(
                format!("/classes/{name}/default"),
                format!("class {first:?} is the default of this policy already"),
            ));
        }
    }
}

/// 3.4.13: classes of equal priority have the same policy.
fn priorities(policy: &Policy, faults: &mut Vec<Fault>) {
    let mut found: BTreeMap<i64, (&str, SharePolicy)> = BTreeMap::new();
    for (name, class) in &policy.classes {
        let (first, kind) = *found.entry(class.priority).or_insert((name, class.policy));
        if kind != class.policy {
            faults.push(fault(
                format!("/classes/{name}/priority"),
                format!("class {first:?} has this priority and another policy"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(change: impl FnOnce(&mut Policy)) -> Vec<String> {
        let mut policy = Policy::default();
        change(&mut policy);
        faults(&policy, &BTreeSet::from(["normal".to_owned()]))
            .into_iter()
            .map(|fault| fault.pointer)
            .collect()
    }

    #[test]
    fn the_shipped_policy_is_without_fault() {
        assert_eq!(broken(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn each_fault_is_named_where_it_stands() {
        let cycle = broken(|policy| {
            policy.pools.entry("default".into()).or_default().parent = Some("default".into());
        });
        assert_eq!(cycle, ["/pools/default/parent"]);
        let unknown = broken(|policy| {
            policy
                .classes
                .entry("high".into())
                .and_modify(|class| class.pool = "x".into());
        });
        assert_eq!(unknown, ["/classes/high/pool"]);
        let weightless = broken(|policy| {
            policy
                .classes
                .entry("low".into())
                .and_modify(|class| class.weight = 0);
        });
        assert_eq!(weightless, ["/classes/low/weight"]);
        let in_use = broken(|policy| drop(policy.classes.remove("normal")));
        assert_eq!(in_use, ["/classes/normal"]);
    }

    #[test]
    fn r_3_4_13_one_policy_per_priority_and_one_default_per_policy() {
        let mixed = broken(|policy| {
            policy
                .classes
                .entry("service".into())
                .and_modify(|class| class.priority = 10);
        });
        assert_eq!(mixed.len(), 1, "{mixed:?}");
        let two = broken(|policy| {
            policy
                .classes
                .entry("low".into())
                .and_modify(|class| class.default = true);
        });
        assert_eq!(two, ["/classes/normal/default"]);
    }
}
