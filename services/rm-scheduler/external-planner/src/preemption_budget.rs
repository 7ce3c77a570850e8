//! Preemption budget: the amount preempted per hour from one pool and from one user is limited
//! (B5).

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{budget::allowed, settings::Settings, snapshot::Allocation};
use hayward_vocabulary::UserName;

use crate::pool_view::PoolView;

pub(crate) struct PreemptionBudget<'a> {
    /// One account per pool of the tree.
    pools: BTreeMap<&'a str, Account>,
    /// Quanta of all nodes in the pools of the tree.
    tree_quanta: u64,
    /// Quanta preempted from each user within the last hour, in all pools of the tree.
    users: BTreeMap<&'a UserName, u64>,
    /// Part of `tree_quanta` that one user may lose per hour, in percent. `None`: no limit.
    user_percent: Option<u64>,
}

/// Quanta that one pool may lose per hour, and quanta that it has lost within the last hour.
#[derive(Default)]
struct Account {
    allowed: u64,
    spent: u64,
}

impl<'a> PreemptionBudget<'a> {
    pub fn new(view: &PoolView<'a>) -> Self {
        let settings = &view.snapshot.tunables.settings;
        // Preemption for fair shares may be unlimited. Preemption by an external planner never is:
        // without a setting the default applies.
        let defaults = Settings::default();
        let mut quanta: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, node) in view.nodes() {
            let node_quanta = view.quantum.quanta_of_node(&node.capacity);
            let sum = quanta.entry(node.pool.as_str()).or_default();
            *sum = sum.saturating_add(node_quanta);
        }
        let percent = settings.preemption_pool_percent_per_hour;
        let percent = percent.or(defaults.preemption_pool_percent_per_hour);
        let user_percent = settings.preemption_user_percent_per_hour;
        let user_percent = user_percent.or(defaults.preemption_user_percent_per_hour);
        let account = |quanta: u64| Account {
            allowed: percent.map_or(u64::MAX, |percent| allowed(quanta, percent)),
            spent: 0,
        };
        let tree_quanta = quanta.values().copied().fold(0, u64::saturating_add);
        let mut budget = Self {
            pools: quanta
                .into_iter()
                .map(|(pool, quanta)| (pool, account(quanta)))
                .collect(),
            tree_quanta,
            users: BTreeMap::new(),
            user_percent,
        };
        for (pool, users) in &view.snapshot.preempted_quanta {
            if view.trees.top_of_pool(pool) == Some(view.top) {
                for (user, quanta) in users {
                    budget.charge(pool, user, *quanta);
                }
            }
        }
        budget
    }

    /// Charges the preemption to the pool and to the user.
    fn charge(&mut self, pool: &str, user: &'a UserName, quanta: u64) {
        if let Some(account) = self.pools.get_mut(pool) {
            account.spent = account.spent.saturating_add(quanta);
        }
        let spent = self.users.entry(user).or_default();
        *spent = spent.saturating_add(quanta);
    }

    /// Charges these allocations of one pool together, or returns the exhausted limit.
    pub fn charge_all(&mut self, pool: &str, all: &[&'a Allocation]) -> Result<(), String> {
        let sum = |all: &mut dyn Iterator<Item = &&'a Allocation>| {
            all.fold(0_u64, |sum, allocation| {
                sum.saturating_add(allocation.quanta)
            })
        };
        let quanta = sum(&mut all.iter());
        if let Some(account) = self.pools.get(pool)
            && account.spent.saturating_add(quanta) > account.allowed
        {
            let (spent, allowed) = (account.spent, account.allowed);
            return Err(format!(
                "pool {pool:?} has given up {spent} of {allowed} quanta an hour"
            ));
        }
        let percent = self.user_percent;
        let user_limit = percent.map_or(u64::MAX, |percent| allowed(self.tree_quanta, percent));
        let users: BTreeSet<&UserName> = all.iter().map(|allocation| &allocation.user).collect();
        for user in users {
            let spent = self.users.get(user).copied().unwrap_or(0);
            let quanta = sum(&mut all.iter().filter(|allocation| allocation.user == *user));
            if spent.saturating_add(quanta) > user_limit {
                return Err(format!(
                    "user {user} has given up {spent} of {user_limit} quanta an hour"
                ));
            }
        }
        for allocation in all {
            self.charge(pool, &allocation.user, allocation.quanta);
        }
        Ok(())
    }
}
