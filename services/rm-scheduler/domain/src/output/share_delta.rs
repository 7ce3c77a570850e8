//! Differences of the shares from one round to the next.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use hayward_vocabulary::{UserName, WorkId};

use super::shares::{ClassShare, Shares, Tally, UserShare, WorkShare};

/// Shares that changed in one round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShareDelta {
    /// Work that left its class or user, with both. The same work may have come back since.
    pub departed: Vec<(Arc<str>, UserName, WorkId)>,
    /// Sums of the fleet, of all classes, and of users that may differ. Work is not included.
    pub shares: Shares,
    /// Users whose work may differ.
    pub users: Vec<UserWorkCount>,
    /// Work that may differ, in the order of `users`.
    pub work: Vec<(WorkId, WorkShare)>,
}

/// One user of one class, with the number of its pieces of work in a [`ShareDelta`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserWorkCount {
    pub class: Arc<str>,
    pub user: UserName,
    /// Number of consecutive entries of [`ShareDelta::work`] that belong to this user.
    pub work_count: usize,
}

impl ShareDelta {
    /// Returns each user with its work.
    pub fn by_user(&self) -> impl Iterator<Item = (&UserWorkCount, &[(WorkId, WorkShare)])> {
        let mut remaining = self.work.as_slice();
        self.users.iter().map(move |user| {
            let (work, rest) = remaining.split_at(user.work_count);
            remaining = rest;
            (user, work)
        })
    }
}

impl ClassShare {
    /// Returns the same sums with other users.
    pub(crate) fn with_users(&self, users: BTreeMap<UserName, UserShare>) -> Self {
        Self {
            tree: self.tree.clone(),
            users,
            ..*self
        }
    }
}

impl UserShare {
    /// Returns all sums, without the work itself.
    pub(crate) fn sums(&self) -> (u64, u64, Tally) {
        (self.assigned, self.unused, self.tally)
    }
}

impl Shares {
    /// Updates the shares of the last round to those of this round.
    pub fn apply_delta(&mut self, delta: ShareDelta) {
        for (class, user, work) in delta.departed {
            let class = self.classes.get_mut(&*class);
            let Some(users) = class.map(|class| &mut class.users) else {
                continue;
            };
            if let Some(share) = users.get_mut(&user) {
                share.work.remove(&work);
                if share.work.is_empty() {
                    users.remove(&user);
                }
            }
        }
        let mut before = std::mem::replace(self, delta.shares);
        for (name, class) in &mut self.classes {
            let Some(previous) = before.classes.remove(name) else {
                continue;
            };
            let users = std::mem::replace(&mut class.users, previous.users);
            for (name, mut user) in users {
                match class.users.entry(name) {
                    Entry::Vacant(entry) => drop(entry.insert(user)),
                    Entry::Occupied(mut entry) => {
                        user.work = std::mem::take(&mut entry.get_mut().work);
                        entry.insert(user);
                    }
                }
            }
        }
        let mut work = delta.work.into_iter();
        for UserWorkCount {
            class,
            user,
            work_count,
        } in delta.users
        {
            let user_work = work.by_ref().take(work_count);
            let class = self.classes.get_mut(&*class);
            let user = class.and_then(|class| class.users.get_mut(&user));
            match user {
                Some(user) => user.work.extend(user_work),
                None => user_work.for_each(drop),
            }
        }
    }
}
