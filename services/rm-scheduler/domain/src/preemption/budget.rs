//! What may be taken back for the sake of others in an hour, from one pool and from one user (B5).
//! Beyond it fairness waits until somebody ends by himself.
//!
//! Counted in quanta, by the pool of the node they lie on. A budget is a percentage of what a whole
//! pool has, and of what the whole tree has for one user, so it means the same in fleets of any
//! size. What leaves for other reasons (drains, blocks, lost nodes, withdrawn work, own limits)
//! costs nothing and is held back by nothing.
//!
//! Invariant: before each order to leave for somebody's sake there was budget for all of it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use hayward_vocabulary::{NodeName, Timestamp, UserName};
use rustc_hash::FxHashMap;

pub use crate::input::snapshot::TakenBack;
use crate::{
    index::AllocationRecord,
    input::snapshot::{Node, Snapshot},
    output::plan::Receipt,
    state::RoundState,
};

pub const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

/// The hour up to now, minute by minute. A minute counts until all of it is an hour ago.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hour {
    minutes: BTreeMap<i64, TakenBack>,
    sum: TakenBack,
}

impl Hour {
    /// The number of the minute that this lies in.
    pub fn minute(at: Timestamp) -> i64 {
        at.unix_ms().div_euclid(MINUTE_MS)
    }

    /// Adds what was taken back; returns all of that minute, pool and user.
    pub fn note(&mut self, minute: i64, (pool, user): (&str, &UserName), quanta: u64) -> u64 {
        add(&mut self.sum, pool, user, quanta);
        add(self.minutes.entry(minute).or_default(), pool, user, quanta)
    }

    /// Adds what a plan takes back from this fleet.
    pub fn receive(&mut self, snapshot: &Snapshot, receipts: &[Receipt]) {
        if receipts.is_empty() {
            return;
        }
        receive(&mut self.sum, &snapshot.nodes, receipts);
        let minute = self.minutes.entry(Self::minute(snapshot.now));
        receive(minute.or_default(), &snapshot.nodes, receipts);
    }

    /// Forgets the oldest minute if it is over, and gives it back.
    pub fn end_minute(&mut self, now: Timestamp) -> Option<(i64, TakenBack)> {
        self.ends().filter(|end| *end <= now)?;
        let (minute, gone) = self.minutes.pop_first()?;
        for (pool, users) in &gone {
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
        Some((minute, gone))
    }

    /// Forgets all that is over; tells whether anything was.
    pub fn pass(&mut self, now: Timestamp) -> bool {
        let mut some = false;
        while self.end_minute(now).is_some() {
            some = true;
        }
        some
    }

    /// When the oldest of it will be forgotten.
    pub fn ends(&self) -> Option<Timestamp> {
        let (oldest, _) = self.minutes.first_key_value()?;
        let end = (oldest + 1).saturating_mul(MINUTE_MS);
        Some(Timestamp::from_unix_ms(end.saturating_add(HOUR_MS)))
    }

    pub fn taken_back(&self) -> &TakenBack {
        &self.sum
    }
}

/// Adds what a plan takes back from these nodes.
pub fn receive(to: &mut TakenBack, nodes: &BTreeMap<NodeName, Node>, receipts: &[Receipt]) {
    for receipt in receipts {
        if let Some(node) = nodes.get(&receipt.node) {
            add(to, &node.pool, &receipt.user, receipt.order);
        }
    }
}

fn add(to: &mut TakenBack, pool: &str, user: &UserName, quanta: u64) -> u64 {
    if !to.contains_key(pool) {
        to.insert(pool.to_owned(), BTreeMap::new());
    }
    let Some(users) = to.get_mut(pool) else {
        return quanta;
    };
    let sum = users.entry(user.clone()).or_default();
    *sum = sum.saturating_add(quanta);
    *sum
}

/// Quanta that so many percent of these come to.
pub fn allowed(quanta: u64, percent: u64) -> u64 {
    let all = u128::from(quanta) * u128::from(percent) / 100;
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// What one pool, or one user in a tree, may lose and has lost.
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

/// The budgets of one round.
pub(crate) struct Budget {
    pools: Vec<Allowance>,
    /// Quanta of each pool, and of each tree by its top.
    quanta: Vec<u64>,
    trees: Vec<u64>,
    user_percent: Option<u64>,
    /// By tree and number of the user: what those have lost who lost anything.
    spent: FxHashMap<(usize, usize), u64>,
}

/// Why something stays for which somebody waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BudgetStop {
    pub pool: usize,
    /// It is the budget of one user, and not that of the pool.
    pub is_user_budget: bool,
    pub allowed: u64,
    pub spent: u64,
    /// Quanta that would have to be taken back.
    pub needed: u64,
    /// The least budget that would allow it.
    pub percent: u64,
}

impl Budget {
    /// Nothing where neither is limited.
    fn open(state: &RoundState) -> Option<Self> {
        let settings = state.settings;
        let pool_percent = settings.preemption_pool_percent_per_hour;
        let user_percent = settings.preemption_user_percent_per_hour;
        if pool_percent.is_none() && user_percent.is_none() {
            return None;
        }
        let forest = state.forest;
        let quanta = state.index.all_quanta.clone();
        let mut trees = vec![0_u64; forest.len()];
        for (pool, quanta) in quanta.iter().enumerate() {
            let tree = &mut trees[forest.root(pool)];
            *tree = tree.saturating_add(*quanta);
        }
        let account = |quanta: &u64| Allowance {
            allowed: pool_percent.map_or(u64::MAX, |percent| allowed(*quanta, percent)),
            spent: 0,
        };
        let mut budget = Self {
            pools: quanta.iter().map(account).collect(),
            quanta,
            trees,
            user_percent,
            spent: FxHashMap::default(),
        };
        for (pool, users) in &state.snapshot.taken_back {
            let Some(pool) = forest.find(pool) else {
                continue;
            };
            for (user, quanta) in users {
                let spent = &mut budget.pools[pool].spent;
                *spent = spent.saturating_add(*quanta);
                if let Some(user) = state.index.find_user(user) {
                    budget.charge((forest.root(pool), user), *quanta);
                }
            }
        }
        Some(budget)
    }

    fn charge(&mut self, owner: (usize, usize), quanta: u64) {
        let spent = self.spent.entry(owner).or_default();
        *spent = spent.saturating_add(quanta);
    }

    fn user(&self, owner: (usize, usize)) -> Allowance {
        let tree = self.trees[owner.0];
        Allowance {
            allowed: self
                .user_percent
                .map_or(u64::MAX, |percent| allowed(tree, percent)),
            spent: self.spent.get(&owner).copied().unwrap_or(0),
        }
    }
}

/// What may be taken back at one node, while it is being chosen.
pub(crate) struct PreemptionBudget<'b> {
    /// With the pool and its tree.
    budget: Option<(&'b Budget, usize, usize)>,
    quanta: u64,
    /// By number of the user; few have anything on one node.
    users: Vec<(usize, u64)>,
    /// Something was not allowed.
    pub declined: bool,
}

impl PreemptionBudget<'_> {
    /// For asking what would be taken if there were no budget.
    pub fn unlimited() -> Self {
        Self {
            budget: None,
            quanta: 0,
            users: Vec::new(),
            declined: false,
        }
    }

    /// Is there budget for this share beside those that were allowed before?
    pub fn allows(&mut self, allocation: &AllocationRecord) -> bool {
        let Some((budget, pool, tree)) = self.budget else {
            return true;
        };
        let at = self.users.iter().position(|(it, _)| *it == allocation.user);
        let at = at.unwrap_or_else(|| {
            self.users.push((allocation.user, 0));
            self.users.len() - 1
        });
        let (user, taken) = &mut self.users[at];
        let (all, of_user) = (self.quanta + allocation.quanta, *taken + allocation.quanta);
        if !budget.pools[pool].covers(all) || !budget.user((tree, *user)).covers(of_user) {
            self.declined = true;
            return false;
        }
        (self.quanta, *taken) = (all, of_user);
        true
    }
}

impl RoundState<'_> {
    fn budget(&self) -> Option<&Budget> {
        self.budget.get_or_init(|| Budget::open(self)).as_ref()
    }

    pub fn preemption_budget(&self, node: usize) -> PreemptionBudget<'_> {
        let pool = self.nodes[node].pool;
        let budget = pool.and_then(|pool| Some((self.budget()?, pool, self.forest.root(pool))));
        PreemptionBudget {
            budget,
            ..PreemptionBudget::unlimited()
        }
    }

    /// May this share alone be taken back?
    pub fn may_take_back(&self, allocation: usize) -> bool {
        let record = &self.allocations[allocation];
        let node = record.node;
        node.is_none_or(|node| self.preemption_budget(node).allows(record))
    }

    /// Charges what is taken back to its pool and its user.
    pub(crate) fn spend(&mut self, allocation: usize) {
        if self.budget().is_none() {
            return;
        }
        let record = &self.allocations[allocation];
        let pool = record.node.and_then(|node| self.nodes[node].pool);
        if let (Some(pool), Some(Some(budget))) = (pool, self.budget.get_mut()) {
            let spent = &mut budget.pools[pool].spent;
            *spent = spent.saturating_add(record.quanta);
            let tree = self.forest.root(pool);
            budget.charge((tree, record.user), record.quanta);
        }
    }

    /// What keeps these shares of one node from being taken back together.
    pub fn budget_stop(&self, node: usize, shares: &[usize]) -> Option<BudgetStop> {
        let pool = self.nodes[node].pool?;
        let (budget, tree) = (self.budget()?, self.forest.root(pool));
        let mut users = BTreeMap::<usize, u64>::new();
        for share in shares
            .iter()
            .map(|allocation| &self.allocations[*allocation])
        {
            *users.entry(share.user).or_default() += share.quanta;
        }
        let of = |account: Allowance, user: bool, quanta: u64, needed: u64| BudgetStop {
            pool,
            is_user_budget: user,
            allowed: account.allowed,
            spent: account.spent,
            needed,
            percent: account
                .spent
                .saturating_add(needed)
                .saturating_mul(100)
                .div_ceil(quanta.max(1)),
        };
        let (account, needed) = (budget.pools[pool], users.values().sum());
        if !account.covers(needed) {
            return Some(of(account, false, budget.quanta[pool], needed));
        }
        users.into_iter().find_map(|(user, needed)| {
            let account = budget.user((tree, user));
            let quanta = budget.trees[tree];
            (!account.covers(needed)).then(|| of(account, true, quanta, needed))
        })
    }

    /// Notes that this request waits because something may not be taken back.
    pub fn record_budget_stop(&mut self, work: usize, budget_stop: Option<BudgetStop>) {
        if let Some(budget_stop) = budget_stop {
            self.budget_stops.insert(work, budget_stop);
        }
    }

    /// Why this request waits, where it is for want of budget.
    pub fn budget_stop_of(&self, at: usize) -> Option<&BudgetStop> {
        // Mostly nobody does, and then no work is looked at.
        let budget_stop = self.budget_stops.get(&at)?;
        let work = &self.work[at];
        (work.missing() > work.reserved).then_some(budget_stop)
    }
}

pub(crate) type OpenBudget = OnceLock<Option<Budget>>;

#[cfg(test)]
mod tests;
