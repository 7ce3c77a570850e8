//! B5: what may be taken back for others within an hour, from one pool and from one user, is
//! limited whoever asks for it.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::{budget::allowed, snapshot::Allocation};
use hayward_vocabulary::UserName;

use crate::book::Book;

pub(crate) struct Purse<'a> {
    pools: BTreeMap<&'a str, Account>,
    tree: u64,
    users: BTreeMap<&'a UserName, u64>,
    user_percent: Option<u64>,
}

#[derive(Default)]
struct Account {
    allowed: u64,
    spent: u64,
}

impl<'a> Purse<'a> {
    pub fn open(book: &Book<'a>) -> Self {
        let settings = &book.snapshot.tunables.settings;
        let mut quanta: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, node) in book.nodes() {
            let order = book.quantum.node_order(&node.capacity);
            let sum = quanta.entry(node.pool.as_str()).or_default();
            *sum = sum.saturating_add(order);
        }
        let percent = settings.preemption_pool_percent_per_hour;
        let account = |quanta: u64| Account {
            allowed: percent.map_or(u64::MAX, |percent| allowed(quanta, percent)),
            spent: 0,
        };
        let tree = quanta.values().copied().fold(0, u64::saturating_add);
        let mut purse = Self {
            pools: quanta
                .into_iter()
                .map(|(pool, quanta)| (pool, account(quanta)))
                .collect(),
            tree,
            users: BTreeMap::new(),
            user_percent: settings.preemption_user_percent_per_hour,
        };
        for (pool, users) in &book.snapshot.taken_back {
            if book.trees.of_pool(pool) == Some(book.top) {
                for (user, quanta) in users {
                    purse.charge((pool, user), *quanta);
                }
            }
        }
        purse
    }

    fn charge(&mut self, (pool, user): (&str, &'a UserName), quanta: u64) {
        if let Some(account) = self.pools.get_mut(pool) {
            account.spent = account.spent.saturating_add(quanta);
        }
        let spent = self.users.entry(user).or_default();
        *spent = spent.saturating_add(quanta);
    }

    /// Pays for this, or says what there is not enough of.
    pub fn pay(&mut self, pool: &str, held: &'a Allocation) -> Result<(), String> {
        let quanta = held.order;
        if let Some(account) = self.pools.get(pool)
            && account.spent.saturating_add(quanta) > account.allowed
        {
            let (spent, allowed) = (account.spent, account.allowed);
            return Err(format!(
                "pool {pool:?} has given up {spent} of {allowed} quanta an hour"
            ));
        }
        let spent = self.users.get(&held.user).copied().unwrap_or(0);
        let most = self.user_percent;
        let most = most.map_or(u64::MAX, |percent| allowed(self.tree, percent));
        if spent.saturating_add(quanta) > most {
            let user = &held.user;
            return Err(format!(
                "user {user} has given up {spent} of {most} quanta an hour"
            ));
        }
        self.charge((pool, &held.user), quanta);
        Ok(())
    }
}
