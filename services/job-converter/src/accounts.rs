//! Numbers of users, which are in the launches of their work. Agents compute accounts from them
//! (TC-22).

use hayward_job_converter_api::DemandEntry;
use hayward_job_converter_domain::user_numbers::{UserNumber, UserNumbers};
use hayward_vocabulary::launch::LaunchAccount;
use hayward_vocabulary::{Timestamp, UserName};
use parking_lot::RwLock;

use crate::store::Rows;
use crate::store::accounts::{AccountRow, RetiredAccountRow};

#[derive(Default)]
pub struct Accounts(RwLock<UserNumbers>);

impl Accounts {
    /// Replaces the numbers at the start of a term.
    pub fn replace(&self, numbers: UserNumbers) {
        *self.0.write() = numbers;
    }

    /// Returns the account of a user that has a number. The number may not be committed yet.
    pub fn known(&self, user: &UserName) -> Option<LaunchAccount> {
        let number = self.0.read().known(user)?;
        Some(account(user, number))
    }

    /// Returns the account of a user. A user without a number gets one with this batch.
    pub fn of_user(&self, user: &UserName, rows: &mut Rows) -> LaunchAccount {
        if let Some(account) = self.known(user) {
            return account;
        }
        let number = self.0.write().number_of(user);
        if let UserNumber::New(number) = number {
            rows.accounts.push(AccountRow {
                user: user.to_string(),
                number: i64::from(number),
            });
        }
        account(user, number.number())
    }

    /// Takes the number of a user away.
    pub fn retire(&self, user: &UserName, now: Timestamp) -> Option<RetiredAccountRow> {
        let number = self.0.write().retire(user)?;
        Some(RetiredAccountRow {
            number: i64::from(number),
            at_ms: now.unix_ms(),
        })
    }

    /// Adds the account of the user to the launch of an entry.
    pub fn add_to(&self, entry: &mut DemandEntry, rows: &mut Rows) {
        if let Some(launch) = &mut entry.launch {
            launch.account = Some(self.of_user(&entry.user, rows));
        }
    }
}

fn account(user: &UserName, number: u32) -> LaunchAccount {
    LaunchAccount {
        user: user.clone(),
        number,
    }
}
