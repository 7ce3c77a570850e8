//! Inheritance of classes: an attribute that is not set is taken from the parent, and so on
//! upwards, except `abstract` and `default`.

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::policy::{Class, Policy, SharePolicy};

/// A class, its parent, and so on up to the root.
pub(crate) struct Lineage<'a>(Vec<&'a Class>);

/// Why a class has no complete lineage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken<'a> {
    /// The class names a parent that does not exist.
    Unknown(&'a str),
    /// The class is its own ancestor.
    Cycle,
    /// An ancestor is broken. The fault is reported there.
    Above,
}

impl<'a> Lineage<'a> {
    pub fn new(policy: &'a Policy, name: &'a str) -> Result<Self, Broken<'a>> {
        let mut line = Vec::new();
        let mut seen = BTreeSet::new();
        let mut at = Some(name);
        while let Some(step) = at {
            if !seen.insert(step) {
                return Err(if step == name {
                    Broken::Cycle
                } else {
                    Broken::Above
                });
            }
            let Some(class) = policy.classes.get(step) else {
                return Err(if line.len() < 2 {
                    Broken::Unknown(step)
                } else {
                    Broken::Above
                });
            };
            line.push(class);
            at = class.parent.as_deref();
        }
        Ok(Self(line))
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

    /// Returns the priority. The default applies after inheritance.
    pub fn priority(&self) -> Option<i64> {
        let natural = match self.policy()? {
            SharePolicy::FairShare => 10,
            SharePolicy::FixedShare => 5,
            SharePolicy::Reserve => 1,
        };
        Some(self.find(|class| class.priority).unwrap_or(natural))
    }

    pub fn weight(&self) -> u64 {
        self.find(|class| class.weight).unwrap_or(100)
    }
}
