//! Budgets for preemption within an hour, per pool and per user. When a budget is spent, no process
//! is preempted, and entitled work waits until processes end by themselves.
//!
//! A budget is a percentage of the quanta of a pool or, for a user, of the quanta of a tree. Usage
//! is charged to the pool of the node. Vacates for other reasons (drains, blocks, lost nodes,
//! withdrawn work, own limits) are neither charged nor limited.
//!
//! Invariant: no preemption starts unless the budgets cover all its quanta.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use hayward_vocabulary::{NodeName, Timestamp, UserName};
use rustc_hash::FxHashMap;

use super::RoundState;
pub use crate::input::snapshot::PreemptedQuanta;
use crate::{
    ids::{AllocIx, NodeIx, PoolIx, TypedVec, UserIx, WorkIx},
    index::AllocationRecord,
    input::snapshot::{Node, Snapshot},
    output::plan::Receipt,
};

pub const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

/// Quanta preempted within the last hour, by minute. A minute counts until its end is an hour ago.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HourlyPreemptions {
    minutes: BTreeMap<i64, PreemptedQuanta>,
    sum: PreemptedQuanta,
}

impl HourlyPreemptions {
    /// Returns the number of minutes from the epoch to the minute that contains this instant.
    pub fn minute(time: Timestamp) -> i64 {
        time.unix_ms().div_euclid(MINUTE_MS)
    }

    /// Adds preempted quanta. Returns the sum of that minute, pool and user.
    pub fn record(&mut self, minute: i64, pool: &str, user: &UserName, quanta: u64) -> u64 {
        add(&mut self.sum, pool, user, quanta);
        add(self.minutes.entry(minute).or_default(), pool, user, quanta)
    }

    /// Adds the preemptions of a plan.
    pub fn record_receipts(&mut self, snapshot: &Snapshot, receipts: &[Receipt]) {
        if receipts.is_empty() {
            return;
        }
        add_receipts(&mut self.sum, &snapshot.nodes, receipts);
        let minute = self.minutes.entry(Self::minute(snapshot.now));
        add_receipts(minute.or_default(), &snapshot.nodes, receipts);
    }

    /// Removes and returns the oldest minute, if it has expired.
    pub fn expire_minute(&mut self, now: Timestamp) -> Option<(i64, PreemptedQuanta)> {
        self.next_expiry().filter(|end| *end <= now)?;
        let (minute, expired) = self.minutes.pop_first()?;
        for (pool, users) in &expired {
            let Some(sums) = self.sum.get_mut(pool) else {
                continue;
            };
            for (user, quanta) in users {
                if let Some(sum) = sums.get_mut(user) {
                    *sum = sum.saturating_sub(*quanta);
                }
            }
            sums.retain(|_, sum| *sum > 0);
        }
        self.sum.retain(|_, users| !users.is_empty());
        Some((minute, expired))
    }

    /// Removes all expired minutes. Returns true if there was one.
    pub fn expire_minutes(&mut self, now: Timestamp) -> bool {
        let mut expired_any = false;
        while self.expire_minute(now).is_some() {
            expired_any = true;
        }
        expired_any
    }

    /// Returns the time when the oldest minute expires.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let (oldest, _) = self.minutes.first_key_value()?;
        let end = (oldest + 1).saturating_mul(MINUTE_MS);
        Some(Timestamp::from_unix_ms(end.saturating_add(HOUR_MS)))
    }

    pub fn preempted_quanta(&self) -> &PreemptedQuanta {
        &self.sum
    }
}

/// Adds the preemptions of a plan on these nodes.
pub fn add_receipts(
    sums: &mut PreemptedQuanta,
    nodes: &BTreeMap<NodeName, Node>,
    receipts: &[Receipt],
) {
    for receipt in receipts {
        if let Some(node) = nodes.get(&receipt.node) {
            add(sums, &node.pool, &receipt.user, receipt.quanta);
        }
    }
}

/// Adds preempted quanta to the sum of a pool and user. Returns the new sum.
fn add(sums: &mut PreemptedQuanta, pool: &str, user: &UserName, quanta: u64) -> u64 {
    if !sums.contains_key(pool) {
        sums.insert(pool.to_owned(), BTreeMap::new());
    }
    let Some(users) = sums.get_mut(pool) else {
        return quanta;
    };
    let sum = users.entry(user.clone()).or_default();
    *sum = sum.saturating_add(quanta);
    *sum
}

/// Returns the quanta that a budget allows: `percent` of `quanta`, rounded down.
pub fn allowed(quanta: u64, percent: u64) -> u64 {
    let exact = u128::from(quanta) * u128::from(percent) / 100;
    u64::try_from(exact).unwrap_or(u64::MAX)
}

/// Budget and usage of one pool, or of one user in a tree, in quanta.
#[derive(Debug, Clone, Copy, Default)]
struct Allowance {
    allowed: u64,
    spent: u64,
}

impl Allowance {
    fn covers(self, quanta: u64) -> bool {
        quanta == 0 || self.spent.saturating_add(quanta) <= self.allowed
    }
}

/// User of a tree. The root pool identifies the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct TreeUser {
    tree: PoolIx,
    user: UserIx,
}

/// The budgets of one round.
pub(crate) struct Budget {
    pools: TypedVec<PoolIx, Allowance>,
    /// Quanta of each pool.
    quanta: TypedVec<PoolIx, u64>,
    /// Quanta of each tree, by its root pool.
    trees: TypedVec<PoolIx, u64>,
    user_percent: Option<u64>,
    /// Usage by tree and user. Users without preemptions are absent.
    spent: FxHashMap<TreeUser, u64>,
}

/// The spent budget for which entitled work waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BudgetStop {
    pub pool: PoolIx,
    /// True if it is the budget of a user, false if it is that of the pool.
    pub is_user_budget: bool,
    pub allowed: u64,
    pub spent: u64,
    /// Quanta of the preemption that the budget does not cover.
    pub needed: u64,
    /// Lowest percentage that would allow the preemption.
    pub percent: u64,
}

impl Budget {
    /// Computes the budgets. Returns `None` if neither pools nor users are limited.
    fn new(state: &RoundState) -> Option<Self> {
        let settings = state.settings;
        let pool_percent = settings.preemption_pool_percent_per_hour;
        let user_percent = settings.preemption_user_percent_per_hour;
        if pool_percent.is_none() && user_percent.is_none() {
            return None;
        }
        let forest = state.forest;
        let quanta = state.index.all_quanta.clone();
        let mut trees: TypedVec<PoolIx, u64> = forest.pools().map(|_| 0).collect();
        for (pool, quanta) in quanta.enumerate() {
            let tree_quanta = &mut trees[forest.root(pool)];
            *tree_quanta = tree_quanta.saturating_add(*quanta);
        }
        let pool_allowance = |quanta: &u64| Allowance {
            allowed: pool_percent.map_or(u64::MAX, |percent| allowed(*quanta, percent)),
            spent: 0,
        };
        let mut budget = Self {
            pools: quanta.iter().map(pool_allowance).collect(),
            quanta,
            trees,
            user_percent,
            spent: FxHashMap::default(),
        };
        for (pool, users) in &state.snapshot.preempted_quanta {
            let Some(pool) = forest.find(pool) else {
                continue;
            };
            for (user, quanta) in users {
                let spent = &mut budget.pools[pool].spent;
                *spent = spent.saturating_add(*quanta);
                if let Some(user) = state.index.find_user(user) {
                    let tree = forest.root(pool);
                    budget.charge(TreeUser { tree, user }, *quanta);
                }
            }
        }
        Some(budget)
    }

    fn charge(&mut self, owner: TreeUser, quanta: u64) {
        let spent = self.spent.entry(owner).or_default();
        *spent = spent.saturating_add(quanta);
    }

    fn user_allowance(&self, owner: TreeUser) -> Allowance {
        let tree_quanta = self.trees[owner.tree];
        Allowance {
            allowed: self
                .user_percent
                .map_or(u64::MAX, |percent| allowed(tree_quanta, percent)),
            spent: self.spent.get(&owner).copied().unwrap_or(0),
        }
    }
}

/// Budgets with the pool of one node and the tree of this pool.
#[derive(Clone, Copy)]
struct NodeBudget<'b> {
    budget: &'b Budget,
    pool: PoolIx,
    tree: PoolIx,
}

/// Budget that applies to one node while allocations are chosen there.
pub(crate) struct PreemptionBudget<'b> {
    /// `None` if nothing is limited.
    limits: Option<NodeBudget<'b>>,
    /// Quanta of the allocations that were allowed so far.
    quanta: u64,
    /// The same quanta by user.
    users: Vec<(UserIx, u64)>,
    /// True if an allocation was not allowed.
    pub declined: bool,
}

impl PreemptionBudget<'_> {
    /// Returns a budget without limits. It shows what would be chosen without budgets.
    pub fn unlimited() -> Self {
        Self {
            limits: None,
            quanta: 0,
            users: Vec::new(),
            declined: false,
        }
    }

    /// Returns true if the budget covers this allocation in addition to those allowed before.
    pub fn allows(&mut self, allocation: &AllocationRecord) -> bool {
        let Some(NodeBudget { budget, pool, tree }) = self.limits else {
            return true;
        };
        let position = self
            .users
            .iter()
            .position(|(user, _)| *user == allocation.user);
        let position = position.unwrap_or_else(|| {
            self.users.push((allocation.user, 0));
            self.users.len() - 1
        });
        let (user, user_quanta) = &mut self.users[position];
        let total = self.quanta + allocation.quanta;
        let user_total = *user_quanta + allocation.quanta;
        if !budget.pools[pool].covers(total)
            || !budget
                .user_allowance(TreeUser { tree, user: *user })
                .covers(user_total)
        {
            self.declined = true;
            return false;
        }
        (self.quanta, *user_quanta) = (total, user_total);
        true
    }
}

impl RoundState<'_> {
    /// Returns the budgets of this round, or `None` if nothing is limited.
    fn budget(&self) -> Option<&Budget> {
        self.budget.get_or_init(|| Budget::new(self)).as_ref()
    }

    /// Returns the budget for preemptions on this node.
    pub fn preemption_budget(&self, node: NodeIx) -> PreemptionBudget<'_> {
        let limits = self.nodes[node].pool.and_then(|pool| {
            Some(NodeBudget {
                budget: self.budget()?,
                pool,
                tree: self.forest.root(pool),
            })
        });
        PreemptionBudget {
            limits,
            ..PreemptionBudget::unlimited()
        }
    }

    /// Returns true if the budget covers this allocation alone.
    pub fn may_preempt(&self, allocation: AllocIx) -> bool {
        let record = &self.allocations[allocation];
        let node = record.node;
        node.is_none_or(|node| self.preemption_budget(node).allows(record))
    }

    /// Charges a preemption to its pool and its user.
    pub(crate) fn charge_preemption(&mut self, allocation: AllocIx) {
        if self.budget().is_none() {
            return;
        }
        let record = &self.allocations[allocation];
        let pool = record.node.and_then(|node| self.nodes[node].pool);
        if let (Some(pool), Some(Some(budget))) = (pool, self.budget.get_mut()) {
            let spent = &mut budget.pools[pool].spent;
            *spent = spent.saturating_add(record.quanta);
            let tree = self.forest.root(pool);
            let user = record.user;
            budget.charge(TreeUser { tree, user }, record.quanta);
        }
    }

    /// Returns the budget that does not cover these allocations of one node together.
    pub fn budget_stop(&self, node: NodeIx, allocations: &[AllocIx]) -> Option<BudgetStop> {
        let pool = self.nodes[node].pool?;
        let (budget, tree) = (self.budget()?, self.forest.root(pool));
        let mut users = BTreeMap::<UserIx, u64>::new();
        for allocation in allocations
            .iter()
            .map(|allocation| &self.allocations[*allocation])
        {
            *users.entry(allocation.user).or_default() += allocation.quanta;
        }
        let stop = |allowance: Allowance, user: bool, quanta: u64, needed: u64| BudgetStop {
            pool,
            is_user_budget: user,
            allowed: allowance.allowed,
            spent: allowance.spent,
            needed,
            percent: allowance
                .spent
                .saturating_add(needed)
                .saturating_mul(100)
                .div_ceil(quanta.max(1)),
        };
        let (allowance, needed) = (budget.pools[pool], users.values().sum());
        if !allowance.covers(needed) {
            return Some(stop(allowance, false, budget.quanta[pool], needed));
        }
        users.into_iter().find_map(|(user, needed)| {
            let allowance = budget.user_allowance(TreeUser { tree, user });
            let quanta = budget.trees[tree];
            (!allowance.covers(needed)).then(|| stop(allowance, true, quanta, needed))
        })
    }

    /// Records that this work waits because of a budget.
    pub fn record_budget_stop(&mut self, work: WorkIx, budget_stop: Option<BudgetStop>) {
        if let Some(budget_stop) = budget_stop {
            self.budget_stops.insert(work, budget_stop);
        }
    }

    /// Returns the budget that makes this work wait, if there is one.
    pub fn find_budget_stop(&self, work: WorkIx) -> Option<&BudgetStop> {
        let budget_stop = self.budget_stops.get(&work)?;
        let work_state = &self.work[work];
        (work_state.missing() > work_state.reserved).then_some(budget_stop)
    }
}

/// Budgets that are computed at the first use.
pub(crate) type OpenBudget = OnceLock<Option<Budget>>;

#[cfg(test)]
mod tests;
