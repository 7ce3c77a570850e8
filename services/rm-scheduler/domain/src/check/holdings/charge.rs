//! Whom a thing that is held is charged to, beside its node: an allotment, or queues.

use hayward_vocabulary::{Size, UserName};

use crate::{
    check::{bytes_of, queues::Charged},
    input::snapshot::{Allocation, Snapshot},
};

/// What was added, so that the same is taken away.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Charge {
    user: UserName,
    class: String,
    group: Option<String>,
    /// Never taken back.
    pub fixed_bytes: Option<u64>,
    /// In queues.
    pub size: Size,
}

impl Charge {
    /// None where nobody is charged: it may be taken back, and its node stands in no tree with
    /// queues.
    pub fn of(snapshot: &Snapshot, allocation: &Allocation, tree: Option<&str>) -> Option<Self> {
        if !allocation.fixed && tree.is_none() {
            return None;
        }
        let bytes = || bytes_of(snapshot, &allocation.class, allocation.order);
        Some(Self {
            user: allocation.user.clone(),
            class: allocation.class.clone(),
            group: allocation.group.clone(),
            fixed_bytes: allocation.fixed.then(bytes),
            size: allocation.size.clone(),
        })
    }

    /// Whose allotment.
    pub fn whose(&self) -> (UserName, String) {
        (self.user.clone(), self.class.clone())
    }

    /// The class of what is in a queue is the path of that queue.
    pub fn queued<'a>(&'a self, tree: &'a str) -> Charged<'a> {
        Charged {
            tree,
            path: &self.class,
            user: &self.user,
            group: self.group.as_deref(),
        }
    }
}
