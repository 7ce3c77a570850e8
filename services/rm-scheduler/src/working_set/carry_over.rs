//! The state that a round passes to the next one (the carry-over), as rows that survive a restart.
//!
//! A round writes the rows that it changed, in its own transaction. The account of a class or a
//! user has the quanta that rounding has withheld. This number grows with time even if nothing
//! changes. The row of an account therefore contains a time and a rate, and is written again only
//! when the rate changes.
//!
//! The number of rows is limited. There are at most five for a piece of work, one for a class, and
//! one for a user of a class. A pool with an external planner has one. The rows of
//! [`preemption_spending`](super::preemption_spending) are in the same table.

use std::sync::Arc;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_domain::snapshot::queues::CarriedQueueState;
use hayward_rm_scheduler_domain::snapshot::{Carried, Deficits};

use crate::model::{PlannerStateKey, PlannerStateRow, PlannerStateRows};
use crate::store::Rows;
use crate::working_set::{Ledger, queues};

/// Maximum number of accounts that each round writes. If more accounts changed, all of them wait
/// until [`WRITE_EVERY_MS`] have passed since the last write. In a class of many users, each start
/// and each end of a process changes all accounts.
const MAX_ACCOUNTS: usize = 1_000;
const WRITE_EVERY_MS: u64 = 1_000;

/// Returns the rows of the carry-over.
pub fn to_rows(carried: &Carried) -> PlannerStateRows {
    let needy = carried
        .needy
        .iter()
        .map(|it| PlannerStateRow::Needy { work: it.clone() });
    let ended = carried
        .ended
        .iter()
        .map(|it| PlannerStateRow::Ended { work: it.clone() });
    let upgrades =
        carried
            .reserved_node_quanta
            .iter()
            .map(|(it, quanta)| PlannerStateRow::ReservedNode {
                work: it.clone(),
                quanta: *quanta,
            });
    let claims = carried
        .claims
        .iter()
        .map(|(it, nodes)| PlannerStateRow::Claim {
            work: it.clone(),
            nodes: nodes.clone(),
        });
    let hits = carried
        .last_loss
        .iter()
        .map(|(it, round)| PlannerStateRow::LastLoss {
            work: it.clone(),
            round: *round,
        });
    let queues = carried.queues.iter();
    let queues = queues.filter(|(_, queue_state)| **queue_state != CarriedQueueState::default());
    let queues = queues.map(|(pool, queue_state)| PlannerStateRow::QueueState {
        pool: pool.clone(),
        state: Box::new(queue_state.clone()),
    });
    let moved = carried
        .recent_preemptions
        .iter()
        .map(|(pool, preemptions)| PlannerStateRow::RecentPreemptions {
            pool: pool.clone(),
            preemptions: Box::new(preemptions.clone()),
        });
    needy
        .chain(ended)
        .chain(queues)
        .chain(moved)
        .chain(upgrades)
        .chain(claims)
        .chain(hits)
        .chain(account_rows(&carried.deficits))
        .map(|row| (row.key(), row))
        .collect()
}

/// Returns the rows of the accounts of classes and users.
fn account_rows(deficits: &Deficits) -> impl Iterator<Item = PlannerStateRow> {
    let at = deficits.updated_at;
    let classes =
        deficits
            .classes
            .iter()
            .map(move |(class, account)| PlannerStateRow::ClassAccount {
                class: class.clone(),
                at,
                account: *account,
            });
    let users = deficits.users.iter().flat_map(move |(class, users)| {
        users
            .iter()
            .map(move |(user, account)| PlannerStateRow::UserAccount {
                class: class.clone(),
                user: user.clone(),
                at,
                account: *account,
            })
    });
    classes.chain(users)
}

/// Restores the carry-over from its rows, as if there had been no restart.
pub fn restore(rows: &PlannerStateRows) -> Carried {
    let accounts = rows.values().filter_map(PlannerStateRow::account);
    let at = accounts.map(|(at, _)| at).max().unwrap_or_default();
    let mut carried = Carried {
        deficits: Deficits {
            updated_at: at,
            ..Deficits::default()
        },
        ..Carried::default()
    };
    for row in rows.values().cloned() {
        match row {
            PlannerStateRow::Needy { work } => drop(Arc::make_mut(&mut carried.needy).insert(work)),
            PlannerStateRow::Ended { work } => drop(carried.ended.insert(work)),
            PlannerStateRow::ReservedNode { work, quanta } => {
                carried.reserved_node_quanta.insert(work, quanta);
            }
            PlannerStateRow::Claim { work, nodes } => drop(carried.claims.insert(work, nodes)),
            PlannerStateRow::LastLoss { work, round } => {
                carried.last_loss.insert(work, round);
            }
            PlannerStateRow::ClassAccount {
                class,
                at: written_at,
                account,
            } => {
                let account = account.after_ms(at.ms_since(written_at));
                carried.deficits.classes.insert(class, account);
            }
            PlannerStateRow::UserAccount {
                class,
                user,
                at: written_at,
                account,
            } => {
                let account = account.after_ms(at.ms_since(written_at));
                let users = carried.deficits.users.entry(class).or_default();
                users.insert(user, account);
            }
            PlannerStateRow::QueueState { pool, state } => {
                drop(carried.queues.insert(pool, *state));
            }
            PlannerStateRow::RecentPreemptions { pool, preemptions } => {
                drop(carried.recent_preemptions.insert(pool, *preemptions));
            }
            // Preempted quanta of the last hour and draining queues are no carry-over.
            PlannerStateRow::PreemptedQuanta { .. } | PlannerStateRow::DrainingQueue { .. } => {}
        }
    }
    carried
}

pub(crate) struct CarryOver {
    /// Rows that are equal to those in the database.
    rows: PlannerStateRows,
    /// Monotonic milliseconds of the last write of accounts.
    accounts_written_ms: u64,
    /// True if changed accounts wait for their write.
    has_unwritten_accounts: bool,
}

impl CarryOver {
    pub fn new(rows: PlannerStateRows, now_ms: u64) -> Self {
        Self {
            rows,
            accounts_written_ms: now_ms,
            has_unwritten_accounts: false,
        }
    }

    pub fn rows(&self) -> &PlannerStateRows {
        &self.rows
    }

    pub fn has_unwritten_accounts(&self) -> bool {
        self.has_unwritten_accounts
    }

    /// Replaces the rows by `rows`. Changed accounts may have to wait, and stay as they are until
    /// then. Returns the rows to write and the keys to delete.
    fn update(
        &mut self,
        mut rows: PlannerStateRows,
        now_ms: u64,
    ) -> (PlannerStateRows, Vec<PlannerStateKey>) {
        let removed = self.rows.keys().filter(|key| !rows.contains_key(*key));
        let removed: Vec<PlannerStateKey> = removed.cloned().collect();
        let is_written = |key: &PlannerStateKey, row: &PlannerStateRow| {
            let written = self.rows.get(key);
            written.is_some_and(|written| written.is_still_valid(row))
        };
        rows.retain(|key, row| !is_written(key, row));
        let is_account = |row: &PlannerStateRow| row.account().is_some();
        let accounts = rows.values().filter(|row| is_account(row)).count();
        let since = now_ms.saturating_sub(self.accounts_written_ms);
        self.has_unwritten_accounts = accounts > MAX_ACCOUNTS && since < WRITE_EVERY_MS;
        if self.has_unwritten_accounts {
            rows.retain(|_, row| !is_account(row));
        } else if accounts > 0 {
            self.accounts_written_ms = now_ms;
        }
        for key in &removed {
            self.rows.remove(key);
        }
        self.rows.extend(rows.clone());
        (rows, removed)
    }
}

impl Ledger {
    /// Stores the carry-over of a round, and writes changed rows.
    pub(crate) fn store_carry_over(
        &mut self,
        mut carried: Carried,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        // Accounts of removed classes are dropped.
        let is_known = |class: &String| self.snapshot.classes.contains_key(class);
        carried.deficits.classes.retain(|class, _| is_known(class));
        carried.deficits.users.retain(|class, _| is_known(class));
        self.snapshot.set_carried(carried);
        self.write_carried(moment, batch);
    }

    /// Writes the rows that changed.
    pub(crate) fn write_carried(&mut self, moment: &Moment, batch: &mut Batch<Rows>) {
        let mut rows = to_rows(&self.snapshot.carried);
        let draining = queues::draining_rows(&self.snapshot.queues).into_iter();
        rows.extend(draining.map(|row| (row.key(), row)));
        let (changed, removed) = self.carry_over.update(rows, moment.monotonic_ms);
        // The batch may have changes of an earlier command for the same keys.
        for key in &removed {
            batch.rows.planner_state.remove(key);
        }
        for key in changed.keys() {
            batch
                .rows
                .removed_planner_state
                .retain(|removed| removed != key);
        }
        batch.rows.removed_planner_state.extend(removed);
        batch.rows.planner_state.extend(changed);
    }
}

#[cfg(test)]
mod tests {
    use hayward_rm_scheduler_domain::snapshot::external_planners::RecentPreemptions;
    use hayward_rm_scheduler_domain::snapshot::{Account, Standing};
    use hayward_vocabulary::{NodeName, Timestamp, UserName, WorkId};

    use super::*;

    /// Returns a carry-over with one row of most kinds.
    fn carried() -> Carried {
        let work = |id: &str| WorkId::new(id).unwrap();
        let account = |owed, rate| Account {
            owed,
            rate,
            standing: Standing::Even,
        };
        let user = UserName::new("ann").unwrap();
        let at = Timestamp::from_unix_ms(9_000);
        let preemptions = RecentPreemptions {
            preempted_at: [(work("job_2"), at)].into(),
            freed_for: [(work("job_1"), vec![at; 2])].into(),
        };
        Carried {
            needy: Arc::new([work("job_1")].into()),
            reserved_node_quanta: [(work("rsv_1"), 4)].into(),
            ended: [work("svc_1.0")].into(),
            deficits: Deficits {
                updated_at: Timestamp::from_unix_ms(10_000),
                classes: [("normal".to_owned(), account(7, 3))].into(),
                users: [("normal".to_owned(), [(user, account(-5, 0))].into())].into(),
            },
            claims: [(work("job_1"), vec![NodeName::new("n1").unwrap(); 2])].into(),
            last_loss: [(work("job_2"), 17)].into(),
            recent_preemptions: [("batch".to_owned(), preemptions)].into(),
            ..Carried::default()
        }
    }

    #[test]
    fn restored_carry_over_equals_the_written_one() {
        let carried = carried();
        let written = to_rows(&carried);
        assert_eq!(written.len(), 8, "one row for each part, and two accounts");
        assert_eq!(restore(&written), carried);
        for (key, row) in written {
            let body = serde_json::to_string(&row).unwrap();
            let read: PlannerStateRow = serde_json::from_str(&body).unwrap();
            assert_eq!((read.key(), read), (key, row));
        }
    }

    #[test]
    fn an_account_that_only_grew_is_not_written_again_and_is_restored_with_its_growth() {
        let mut carried = carried();
        let written = to_rows(&carried);
        let deficits = &mut carried.deficits;
        deficits.updated_at = deficits.updated_at.plus_ms(400);
        let class = deficits.classes.get_mut("normal").unwrap();
        class.owed += 400 * class.rate;
        let current = to_rows(&carried);
        assert!(
            current
                .iter()
                .all(|(key, row)| written[key].is_still_valid(row))
        );
        // The row of the class is older than the row of the user.
        let mut mixed = written;
        let user: PlannerStateKey = ("user", "ann normal".to_owned());
        mixed.insert(user.clone(), current[&user].clone());
        assert_eq!(restore(&mixed), carried);

        let class = carried.deficits.classes.get_mut("normal").unwrap();
        class.rate = 2;
        let key: PlannerStateKey = ("class", "normal".to_owned());
        assert!(!current[&key].is_still_valid(&to_rows(&carried)[&key]));
    }
}
