//! The charge of an allocation: the accounts that it counts against besides its node. These are the
//! allotment of its user, or its queues.

use hayward_vocabulary::{Size, UserName};

use crate::{
    check::{bytes_of, queues::ChargedAccounts},
    input::snapshot::{Allocation, Snapshot},
};

/// Charge of one allocation as it was added, so that the same amount is subtracted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Charge {
    user: UserName,
    class: String,
    group: Option<String>,
    /// Bytes of a fixed allocation. `None` if the allocation is preemptable.
    pub fixed_bytes: Option<u64>,
    /// Size charged to queues.
    pub size: Size,
}

impl Charge {
    /// Returns `None` if there is no account to charge: the allocation is preemptable, and its tree
    /// has no queues.
    pub fn new(snapshot: &Snapshot, allocation: &Allocation, tree: Option<&str>) -> Option<Self> {
        if !allocation.fixed && tree.is_none() {
            return None;
        }
        let bytes = || bytes_of(snapshot, &allocation.class, allocation.quanta);
        Some(Self {
            user: allocation.user.clone(),
            class: allocation.class.clone(),
            group: allocation.group.clone(),
            fixed_bytes: allocation.fixed.then(bytes),
            size: allocation.size.clone(),
        })
    }

    /// Returns the key of the allotment: user and class.
    pub fn owner(&self) -> (UserName, String) {
        (self.user.clone(), self.class.clone())
    }

    /// Returns the charge to queues. For work in a queue, the class is the path of the queue.
    pub fn queue_accounts<'a>(&'a self, tree: &'a str) -> ChargedAccounts<'a> {
        ChargedAccounts {
            tree,
            path: &self.class,
            user: &self.user,
            group: self.group.as_deref(),
        }
    }
}
