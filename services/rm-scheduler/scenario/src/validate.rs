//! Validates the policy of a scenario by the rules of `PUT /v1/policy` and `hayward policy check`,
//! and reports all faults at once.
//! A scenario needs no default classes. Its pools need no nodes, because a node appears when it
//! reports. An attribute that the policy of a class does not use has no effect.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::policy::{self as api, Policy, UserPolicy};
use hayward_rm_scheduler_domain::snapshot::{Snapshot, User};
use hayward_rm_scheduler_policy::{Fault, contradictions};
use hayward_vocabulary::{Quantum, Size, UserName};

use serde_json::{Map, Value};

use crate::{
    Error,
    document::{ClassDocument, PoolDocument, SharePolicy},
    policy::{self, non_negative},
};

/// Pools and classes of the policy in force. A policy event may replace each of the two lists.
#[derive(Debug, Clone, Default)]
pub struct PolicyParts {
    pub nodepools: Vec<PoolDocument>,
    pub classes: Vec<ClassDocument>,
}

impl PolicyParts {
    /// Validates the policy and applies it to the snapshot. Without `users` the earlier users stay.
    ///
    /// # Errors
    /// Returns each fault with its location and its correction. In that case nothing changes.
    pub fn apply_to(
        &self,
        snapshot: &mut Snapshot,
        users: Option<&Vec<Map<String, Value>>>,
    ) -> Result<(), Error> {
        let (users, mut faults) = users.map_or_else(
            || (snapshot.users.clone(), Vec::new()),
            |users| policy::parse_users(users),
        );
        faults.extend(self.faults(&snapshot.quantum, &users));
        if !faults.is_empty() {
            return Err(Error::Policy(faults));
        }
        snapshot.pools = policy::to_pools(&self.nodepools);
        snapshot.classes = policy::to_classes(&self.classes);
        snapshot.users = users;
        Ok(())
    }

    fn faults(&self, quantum: &Quantum, users: &BTreeMap<UserName, User>) -> Vec<String> {
        let mut faults = self.repeated_names();
        let policy = Policy {
            quantum: quantum.clone(),
            pools: (0_u64..)
                .zip(&self.nodepools)
                .map(|(place, document)| (document.name.clone(), to_api_pool(place, document)))
                .collect(),
            classes: (0_u64..)
                .zip(&self.classes)
                .map(|(place, document)| (document.name.clone(), to_api_class(place, document)))
                .collect(),
            users: users
                .iter()
                .map(|(name, user)| (name.to_string(), to_api_user(user)))
                .collect(),
            ..Policy::default()
        };
        let contradictions = contradictions(&policy);
        faults.extend(contradictions.iter().map(|fault| self.fault_text(fault)));
        faults
    }

    /// Returns a fault for each name that appears twice.
    fn repeated_names(&self) -> Vec<String> {
        let pools = self.nodepools.iter().map(|pool| pool.name.as_str());
        let classes = self.classes.iter().map(|class| class.name.as_str());
        let mut faults = find_repeated("nodepools", pools);
        faults.extend(find_repeated("classes", classes));
        faults
    }

    /// Returns the text of a fault with its location in the scenario. A scenario lists pools and
    /// classes, while a policy has maps.
    fn fault_text(&self, Fault { pointer, detail }: &Fault) -> String {
        let steps: Vec<String> = pointer.split('/').skip(1).map(unescape_pointer).collect();
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        let location = match steps[..] {
            ["pools", name, ref remaining @ ..] => {
                let index = self.nodepools.iter().position(|pool| pool.name == name);
                list_location("nodepools", index, name, remaining)
            }
            ["classes", name, ref remaining @ ..] => {
                let index = self.classes.iter().position(|class| class.name == name);
                list_location("classes", index, name, remaining)
            }
            ["pools"] => "nodepools".to_owned(),
            ["quantum", ..] => "settings.share_quantum_gb".to_owned(),
            ref other => other.join("."),
        };
        format!("{location}: {detail}")
    }
}

fn unescape_pointer(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn list_location(list: &str, index: Option<usize>, name: &str, remaining: &[&str]) -> String {
    let index = index.unwrap_or_default();
    let field = match (list, remaining) {
        (_, []) => String::new(),
        ("classes", ["pool", ..]) => ".nodepool".to_owned(),
        ("nodepools", ["quantum", ..]) => ".share_quantum_gb".to_owned(),
        (_, [field, item]) => format!(".{field}[{item}]"),
        (_, [field, ..]) => format!(".{field}"),
    };
    format!("{list}[{index}]{field} ({name:?})")
}

fn find_repeated<'a>(list: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut first_index: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for (index, name) in names.enumerate() {
        if let Some(earlier) = first_index.get(name) {
            let detail = "has this name already: give each its own";
            faults.push(format!(
                "{list}[{index}].name ({name:?}): {list}[{earlier}] {detail}"
            ));
        } else {
            first_index.insert(name, index);
        }
    }
    faults
}

fn to_api_pool(place: u64, document: &PoolDocument) -> api::Pool {
    let quantum = document.share_quantum_gb;
    api::Pool {
        parent: document.parent.clone(),
        search_order: document.search_order.unwrap_or(100),
        place: Some(place),
        quantum: quantum.map(|gigabytes| Quantum(Size::memory(gigabytes.0))),
        nodes: document.nodes.clone(),
        domain: document.domain.clone(),
        ..api::Pool::default()
    }
}

fn to_api_class(place: u64, document: &ClassDocument) -> api::Class {
    let is_fair_share = document.policy == SharePolicy::FairShare;
    let mut class = api::Class {
        policy: Some(match document.policy {
            SharePolicy::FairShare => api::SharePolicy::FairShare,
            SharePolicy::FixedShare => api::SharePolicy::FixedShare,
            SharePolicy::Reserve => api::SharePolicy::Reserve,
        }),
        priority: document.priority,
        pool: Some(document.nodepool.clone()),
        default: document.default.unwrap_or(false),
        users: document.users.clone(),
        place: Some(place),
        ..api::Class::default()
    };
    if is_fair_share {
        class.weight = document.weight;
        class.debug.clone_from(&document.debug);
        class.initialization_cap = document.initialization_cap.map(non_negative);
        class.prediction_fudge_ms = document.prediction_fudge_ms.map(|time| time.0);
    }
    class
}

/// Converts a user. Only the names of the classes are checked, so all amounts are 0.
fn to_api_user(user: &User) -> UserPolicy {
    let classes = user.max_allotment_by_class.keys();
    UserPolicy {
        max_allotment_gb_by_class: classes.map(|class| (class.clone(), 0)).collect(),
        ..UserPolicy::default()
    }
}
