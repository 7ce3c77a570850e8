//! Preempted quanta of the last hour, for the preemption budget. The budget limits the quanta that
//! are preempted from a pool or a user in an hour. The quanta of each minute are in memory, and in
//! rows of table `carried` for a restart. A row is written with the round that preempts (B5).

use std::collections::BTreeMap;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::shares::{Budgets, PoolBudget, UserBudget};
use hayward_rm_scheduler_domain::budget::{HourlyPreemptions, PreemptedQuanta, allowed};
use hayward_rm_scheduler_domain::plan;
use hayward_rm_scheduler_domain::settings::Settings;
use hayward_vocabulary::{Receipt, UserName};

use crate::model::{PlannerStateRow, PlannerStateRows, preempted_quanta_key};
use crate::store::Rows;
use crate::working_set::Ledger;

/// Splits the rows of table `carried`. Returns all other rows, and the preemptions of the last
/// hour.
pub(crate) fn split_rows(mut rows: PlannerStateRows) -> (PlannerStateRows, HourlyPreemptions) {
    let mut last_hour = HourlyPreemptions::default();
    rows.retain(|_, row| {
        let PlannerStateRow::PreemptedQuanta {
            minute,
            pool,
            user,
            quanta,
        } = row
        else {
            return true;
        };
        last_hour.record(*minute, pool, user, *quanta);
        false
    });
    (rows, last_hour)
}

impl Ledger {
    /// Returns the budgets, computed from the quanta of the pools in the newest round.
    pub(crate) fn budgets(&self) -> Budgets {
        let settings = &self.snapshot.tunables.settings;
        budgets(
            settings,
            self.planning.sums(),
            &self.snapshot.preempted_quanta,
        )
    }

    /// Charges the preemptions that a round carried out.
    pub(crate) fn charge_preemptions<'r>(
        &mut self,
        receipts: impl Iterator<Item = &'r Receipt>,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let minute = HourlyPreemptions::minute(moment.now);
        for receipt in receipts {
            let Some(node) = self.snapshot.nodes.get(&receipt.node) else {
                continue;
            };
            let (pool, user) = (&node.pool, &receipt.user);
            let quanta = self
                .preempted_last_hour
                .record(minute, pool, user, receipt.order);
            let row = PlannerStateRow::PreemptedQuanta {
                minute,
                pool: node.pool.clone(),
                user: receipt.user.clone(),
                quanta,
            };
            batch.rows.planner_state.insert(row.key(), row);
        }
        self.update_preempted_quanta();
    }

    /// Copies the preempted quanta of the last hour to the snapshot, if they changed.
    fn update_preempted_quanta(&mut self) {
        let preempted_quanta = self.preempted_last_hour.preempted_quanta();
        if *preempted_quanta != self.snapshot.preempted_quanta {
            self.snapshot.set_preempted_quanta(preempted_quanta.clone());
        }
    }

    /// Drops minutes older than an hour, and requests a round for work that waits for the budget.
    pub(crate) fn expire_preemption_minutes(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        while let Some((minute, expired)) = self.preempted_last_hour.expire_minute(moment.now) {
            for (pool, users) in expired {
                let key = |user: &UserName| preempted_quanta_key(minute, &pool, user);
                for key in users.keys().map(key) {
                    batch.rows.planner_state.remove(&key);
                    batch.rows.removed_planner_state.push(key);
                }
            }
            self.timing.request_round();
        }
        self.update_preempted_quanta();
    }
}

/// Returns the budgets, computed as in the planner. `shares` has the quanta of the pools.
fn budgets(settings: &Settings, shares: &plan::Shares, preempted: &PreemptedQuanta) -> Budgets {
    let (pool_percent, user_percent) = (
        settings.preemption_pool_percent_per_hour,
        settings.preemption_user_percent_per_hour,
    );
    let pool_budget = |(name, pool): (&String, &plan::PoolShare)| PoolBudget {
        pool: name.clone(),
        allowed: pool_percent.map(|percent| allowed(pool.total, percent)),
        spent: preempted.get(name).map_or(0, |users| users.values().sum()),
    };
    let tree_of = |pool: &String| shares.pools.get(pool).map(|share| share.tree.as_str());
    let tree_quanta = |tree: &str| -> u64 {
        let pools = shares.pools.values();
        pools.filter(|it| it.tree == tree).map(|it| it.total).sum()
    };
    let mut spent = BTreeMap::<(&str, &UserName), u64>::new();
    for (pool, users) in preempted {
        for (user, quanta) in users {
            if let Some(tree) = tree_of(pool) {
                *spent.entry((tree, user)).or_default() += quanta;
            }
        }
    }
    let user_budget = |((tree, user), spent): ((&str, &UserName), u64)| UserBudget {
        tree: tree.to_owned(),
        user: user.clone(),
        allowed: user_percent.map(|percent| allowed(tree_quanta(tree), percent)),
        spent,
    };
    Budgets {
        pool_percent_per_hour: pool_percent,
        user_percent_per_hour: user_percent,
        pools: shares.pools.iter().map(pool_budget).collect(),
        users: spent.into_iter().map(user_budget).collect(),
        others: Vec::new(),
    }
}
