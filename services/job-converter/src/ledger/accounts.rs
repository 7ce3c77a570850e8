//! Takes away the number of a user without live work.

use hayward_publication::committer::{Batch, Moment};
use hayward_vocabulary::UserName;

use super::Ledger;
use crate::error::Refusal;
use crate::store::Rows;

impl Ledger {
    /// Retires the number of a user without live work. Later work of the user gets another number.
    pub(super) fn forget_account(
        &mut self,
        user: &UserName,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        if self.shared.accounts.known(user).is_none() {
            return Err(Refusal::NoSuchAccount(user.clone()));
        }
        if let Some(work) = self.live_work_of(user) {
            return Err(Refusal::AccountInUse {
                user: user.clone(),
                work,
            });
        }
        if !batch.is_dry_run() {
            let retired = self.shared.accounts.retire(user, moment.now);
            batch.rows.retired_accounts.extend(retired);
        }
        Ok(())
    }

    /// Returns the name of one piece of the user's work that has not ended.
    fn live_work_of(&self, user: &UserName) -> Option<String> {
        let mut works = self.works.values();
        let work = works.find(|work| work.user == *user);
        work.map(|work| work.id.to_string())
            .or_else(|| self.applications.live_application_of(user))
            .or_else(|| self.orchestrators.live_work_of(user))
    }
}
