//! Inheritance of classes. A class without an attribute takes it from the nearest ancestor that
//! sets it. Only `abstract` and `default` are not inherited.

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::policy::{Class, Policy, SharePolicy};

/// A class, its parent, and so on up to the class without a parent.
pub(crate) struct Ancestry<'a>(Vec<&'a Class>);

/// Reason why the ancestors of a class cannot be determined.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AncestryError<'a> {
    /// The class names a parent that does not exist.
    UnknownParent(&'a str),
    /// The class is its own ancestor.
    Cycle,
    /// An ancestor has one of these two faults. The fault is reported at the ancestor.
    BrokenAncestor,
}

impl<'a> Ancestry<'a> {
    pub fn new(policy: &'a Policy, name: &'a str) -> Result<Self, AncestryError<'a>> {
        let mut classes = Vec::new();
        let mut visited = BTreeSet::new();
        let mut next = Some(name);
        while let Some(current) = next {
            if !visited.insert(current) {
                return Err(if current == name {
                    AncestryError::Cycle
                } else {
                    AncestryError::BrokenAncestor
                });
            }
            let Some(class) = policy.classes.get(current) else {
                return Err(if classes.len() < 2 {
                    AncestryError::UnknownParent(current)
                } else {
                    AncestryError::BrokenAncestor
                });
            };
            classes.push(class);
            next = class.parent.as_deref();
        }
        Ok(Self(classes))
    }

    /// Returns the attribute of the nearest class that sets it.
    pub fn find<T>(&self, attribute: impl Fn(&'a Class) -> Option<T>) -> Option<T> {
        self.0.iter().find_map(|class| attribute(class))
    }

    pub fn policy(&self) -> Option<SharePolicy> {
        self.find(|class| class.policy)
    }

    pub fn pool(&self) -> Option<&'a str> {
        self.find(|class| class.pool.as_deref())
    }

    /// Returns the priority, or the default of the policy if neither the class nor an ancestor sets
    /// one.
    pub fn priority(&self) -> Option<i64> {
        let default = match self.policy()? {
            SharePolicy::FairShare => 10,
            SharePolicy::FixedShare => 5,
            SharePolicy::Reserve => 1,
        };
        Some(self.find(|class| class.priority).unwrap_or(default))
    }

    pub fn weight(&self) -> u64 {
        self.find(|class| class.weight).unwrap_or(100)
    }
}
