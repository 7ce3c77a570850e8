//! Validates the policy of a scenario by the rules of `PUT /v1/policy` and `hayward policy check`,
//! and reports all faults at once.
//!
//! A scenario may leave out default classes, and nodes of a pool, because nodes appear when they
//! report. An attribute that the policy of a class does not use has no effect.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::policy::{self as api, Policy, UserPolicy};
use hayward_rm_scheduler_domain::snapshot::{Snapshot, User};
use hayward_rm_scheduler_policy::{Fault, contradictions};
use hayward_vocabulary::{Quantum, Size, UserName};

use serde_json::{Map, Value};

use crate::{
    Error,
    document::{ClassDocument, PoolDocument, SharePolicy},
    policy::{self, count},
};

/// The last value of each part of a policy.
#[derive(Debug, Clone, Default)]
pub struct PolicyParts {
    pub nodepools: Vec<PoolDocument>,
    pub classes: Vec<ClassDocument>,
}

impl PolicyParts {
    /// Applies the policy, with these users if there are any.
    ///
    /// # Errors
    /// Each fault with its place and its correction. In that case nothing changes.
    pub fn enforce(
        &self,
        snapshot: &mut Snapshot,
        users: Option<&Vec<Map<String, Value>>>,
    ) -> Result<(), Error> {
        let (users, mut faults) = users.map_or_else(
            || (snapshot.users.clone(), Vec::new()),
            |users| policy::users(users),
        );
        faults.extend(self.faults(&snapshot.quantum, &users));
        if !faults.is_empty() {
            return Err(Error::Policy(faults));
        }
        snapshot.pools = policy::pools(&self.nodepools);
        snapshot.classes = policy::classes(&self.classes);
        snapshot.users = users;
        Ok(())
    }

    fn faults(&self, quantum: &Quantum, users: &BTreeMap<UserName, User>) -> Vec<String> {
        let mut faults = self.twice();
        let policy = Policy {
            quantum: quantum.clone(),
            pools: (0_u64..)
                .zip(&self.nodepools)
                .map(|(place, document)| (document.name.clone(), pool(place, document)))
                .collect(),
            classes: (0_u64..)
                .zip(&self.classes)
                .map(|(place, document)| (document.name.clone(), class(place, document)))
                .collect(),
            users: users
                .iter()
                .map(|(name, user)| (name.to_string(), user_policy(user)))
                .collect(),
            ..Policy::default()
        };
        let found = contradictions(&policy);
        faults.extend(found.iter().map(|fault| self.fault_text(fault)));
        faults
    }

    /// Names that appear twice.
    fn twice(&self) -> Vec<String> {
        let pools = self.nodepools.iter().map(|pool| pool.name.as_str());
        let classes = self.classes.iter().map(|class| class.name.as_str());
        let mut faults = repeated("nodepools", pools);
        faults.extend(repeated("classes", classes));
        faults
    }

    /// Text of a fault with its place in the scenario, where pools and classes are lists.
    fn fault_text(&self, Fault { pointer, detail }: &Fault) -> String {
        let steps: Vec<String> = pointer.split('/').skip(1).map(unescaped).collect();
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        let place = match steps[..] {
            ["pools", name, ref rest @ ..] => {
                let at = self.nodepools.iter().position(|pool| pool.name == name);
                in_list("nodepools", at, name, rest)
            }
            ["classes", name, ref rest @ ..] => {
                let at = self.classes.iter().position(|class| class.name == name);
                in_list("classes", at, name, rest)
            }
            ["pools"] => "nodepools".to_owned(),
            ["quantum", ..] => "settings.share_quantum_gb".to_owned(),
            ref other => other.join("."),
        };
        format!("{place}: {detail}")
    }
}

fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn in_list(list: &str, at: Option<usize>, name: &str, rest: &[&str]) -> String {
    let at = at.unwrap_or_default();
    let field = match (list, rest) {
        (_, []) => String::new(),
        ("classes", ["pool", ..]) => ".nodepool".to_owned(),
        ("nodepools", ["quantum", ..]) => ".share_quantum_gb".to_owned(),
        (_, [field, place]) => format!(".{field}[{place}]"),
        (_, [field, ..]) => format!(".{field}"),
    };
    format!("{list}[{at}]{field} ({name:?})")
}

fn repeated<'a>(list: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for (at, name) in names.enumerate() {
        if let Some(before) = first.get(name) {
            let detail = "has this name already: give each its own";
            faults.push(format!(
                "{list}[{at}].name ({name:?}): {list}[{before}] {detail}"
            ));
        } else {
            first.insert(name, at);
        }
    }
    faults
}

fn pool(place: u64, given: &PoolDocument) -> api::Pool {
    let quantum = given.share_quantum_gb;
    api::Pool {
        parent: given.parent.clone(),
        search_order: given.search_order.unwrap_or(100),
        place: Some(place),
        quantum: quantum.map(|gigabytes| Quantum(Size::memory(gigabytes.0))),
        nodes: given.nodes.clone(),
        domain: given.domain.clone(),
        ..api::Pool::default()
    }
}

fn class(place: u64, given: &ClassDocument) -> api::Class {
    let fair = given.policy == SharePolicy::FairShare;
    let mut class = api::Class {
        policy: Some(match given.policy {
            SharePolicy::FairShare => api::SharePolicy::FairShare,
            SharePolicy::FixedShare => api::SharePolicy::FixedShare,
            SharePolicy::Reserve => api::SharePolicy::Reserve,
        }),
        priority: given.priority,
        pool: Some(given.nodepool.clone()),
        default: given.default.unwrap_or(false),
        users: given.users.clone(),
        place: Some(place),
        ..api::Class::default()
    };
    if fair {
        class.weight = given.weight;
        class.debug.clone_from(&given.debug);
        class.initialization_cap = given.initialization_cap.map(count);
        class.prediction_fudge_ms = given.prediction_fudge_ms.map(|time| time.0);
    }
    class
}

/// Only for the named classes; amounts are not checked.
fn user_policy(user: &User) -> UserPolicy {
    let named = user.max_allotment_by_class.keys();
    UserPolicy {
        max_allotment_gb_by_class: named.map(|class| (class.clone(), 0)).collect(),
        ..UserPolicy::default()
    }
}
