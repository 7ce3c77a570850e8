//! What a policy has to leave alone at this moment: the classes that work is in (F44). Everything
//! else that makes a policy acceptable is in the crate of its rules.

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::policy::Policy;
pub use hayward_rm_scheduler_policy::Fault;
use hayward_rm_scheduler_policy::pointer;

/// `in_use` are the classes that work names at the moment; none of them may go.
pub fn faults(policy: &Policy, in_use: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = hayward_rm_scheduler_policy::faults(policy);
    let serves = |name: &String| {
        let class = policy.classes.get(name);
        class.is_some_and(|class| !class.is_abstract)
    };
    faults.extend(in_use.iter().filter(|name| !serves(name)).map(|name| {
        Fault {
            pointer: pointer(&["classes", name]),
            detail:
                "is in use: end or move its work first, or ask with drop_classes=true, which ends \
                 jobs and services in it"
                    .to_owned(),
        }
    }));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f44_a_class_in_use_neither_goes_nor_becomes_a_template() {
        let in_use = BTreeSet::from(["normal".to_owned(), "low".to_owned()]);
        assert!(faults(&Policy::default(), &in_use).is_empty());
        let mut policy = Policy::default();
        policy.classes.remove("low");
        let low = policy.classes.entry("normal".into()).or_default();
        low.is_abstract = true;
        low.default = false;
        let class = policy.classes.entry("high".into()).or_default();
        class.default = true;
        let told: Vec<String> = faults(&policy, &in_use)
            .into_iter()
            .map(|fault| fault.pointer)
            .collect();
        assert_eq!(told, ["/classes/low", "/classes/normal"]);
    }
}
