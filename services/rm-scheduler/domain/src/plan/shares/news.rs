//! What became different in the shares of a fleet from one round to the next.

use std::collections::{BTreeMap, btree_map::Entry};

use hayward_vocabulary::{UserName, WorkId};

use super::{ClassShare, Shares, Tally, UserShare, WorkShare};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShareNews {
    /// Work that left a class and user; it may have come back to the same or another.
    pub gone: Vec<(String, UserName, WorkId)>,
    /// Sums of the fleet and of all classes, and of users what may differ; no work.
    pub shares: Shares,
    /// Of work what may differ.
    pub work: Vec<OfUser>,
}

/// Work of one user in one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfUser {
    pub class: String,
    pub user: UserName,
    pub work: Vec<(WorkId, WorkShare)>,
}

impl ClassShare {
    /// The same sums with other users.
    pub(crate) fn with(&self, users: BTreeMap<UserName, UserShare>) -> Self {
        Self {
            tree: self.tree.clone(),
            users,
            ..*self
        }
    }
}

impl UserShare {
    /// All but the work itself.
    pub(crate) fn sums(&self) -> (u64, u64, Tally) {
        (self.given, self.left, self.tally)
    }
}

impl Shares {
    pub fn absorb(&mut self, news: ShareNews) {
        for (class, user, work) in news.gone {
            let class = self.classes.get_mut(&class);
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
        let mut before = std::mem::replace(self, news.shares);
        for (name, class) in &mut self.classes {
            let Some(known) = before.classes.remove(name) else {
                continue;
            };
            let news = std::mem::replace(&mut class.users, known.users);
            for (name, mut user) in news {
                match class.users.entry(name) {
                    Entry::Vacant(place) => drop(place.insert(user)),
                    Entry::Occupied(mut place) => {
                        user.work = std::mem::take(&mut place.get_mut().work);
                        place.insert(user);
                    }
                }
            }
        }
        for OfUser { class, user, work } in news.work {
            let class = self.classes.get_mut(&class);
            if let Some(user) = class.and_then(|class| class.users.get_mut(&user)) {
                user.work.extend(work);
            }
        }
    }
}
