//! Differences of the shares from one round to the next.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use hayward_vocabulary::{UserName, WorkId};

use super::shares::{ClassShare, Shares, Tally, UserShare, WorkShare};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShareDelta {
    /// Work that left its class or user. It may have come back.
    pub gone: Vec<(Arc<str>, UserName, WorkId)>,
    /// Sums of the fleet, of all classes, and of users that may differ. Work is not included.
    pub shares: Shares,
    /// Users whose work may differ.
    pub users: Vec<OfUser>,
    /// Work that may differ, in the order of `users`.
    pub work: Vec<(WorkId, WorkShare)>,
}

/// One user in one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfUser {
    pub class: Arc<str>,
    pub user: UserName,
    /// Number of consecutive items in `work` that belong to this user.
    pub pieces: usize,
}

impl ShareDelta {
    /// Returns each user with its work.
    pub fn by_user(&self) -> impl Iterator<Item = (&OfUser, &[(WorkId, WorkShare)])> {
        let mut rest = self.work.as_slice();
        self.users.iter().map(move |user| {
            let (work, others) = rest.split_at(user.pieces);
            rest = others;
            (user, work)
        })
    }
}

impl ClassShare {
    /// Returns the same sums with other users.
    pub(crate) fn with(&self, users: BTreeMap<UserName, UserShare>) -> Self {
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
        (self.given, self.left, self.tally)
    }
}

impl Shares {
    pub fn absorb(&mut self, news: ShareDelta) {
        for (class, user, work) in news.gone {
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
        let mut work = news.work.into_iter();
        for OfUser {
            class,
            user,
            pieces,
        } in news.users
        {
            let of_user = work.by_ref().take(pieces);
            let class = self.classes.get_mut(&*class);
            let user = class.and_then(|class| class.users.get_mut(&user));
            match user {
                Some(user) => user.work.extend(of_user),
                None => of_user.for_each(drop),
            }
        }
    }
}
