//! A plan as its difference from the plan recorded before it. Grants and vacates are new in each
//! plan, so all of them are written. Verdicts and shares are written only if they changed.

use std::{collections::BTreeMap, sync::Arc};

use hayward_rm_scheduler_domain::plan::{self, ShareDelta, Shares, WorkShare};
use hayward_rm_scheduler_domain::{Decision, Plan, Verdict, Verdicts};
use hayward_vocabulary::{UserName, WorkId};
use serde::{Deserialize, Serialize};

use crate::tracked_snapshot::apply_changes;

/// Changed shares by class, user and work. `None` for work that left the class.
type SharesByUser = BTreeMap<Arc<str>, BTreeMap<UserName, BTreeMap<WorkId, Option<WorkShare>>>>;

#[derive(Debug, Serialize, Deserialize)]
pub struct PlanDiff {
    /// Plan without verdicts and without shares of work.
    #[serde(rename = "rest")]
    plan: Plan,
    #[serde(flatten)]
    changes: WorkChanges,
}

/// Changed verdicts and changed shares of work.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WorkChanges {
    /// Verdict of each work. `None` for work that no longer has a verdict.
    verdicts: BTreeMap<WorkId, Option<Box<Verdict>>>,
    shares: SharesByUser,
}

impl WorkChanges {
    /// Creates changes that contain verdicts and shares of all work.
    pub fn all(verdicts: Verdicts, shares: Shares) -> Self {
        let mut changes = Self::default();
        changes.add_verdicts(verdicts);
        for (class, share) in shares.classes {
            let class = class.into();
            for (user, share) in share.users {
                changes.set_shares_of_user(&class, user, share.work);
            }
        }
        changes
    }

    /// Returns how many pieces of work have a changed verdict.
    pub fn changed_work_count(&self) -> usize {
        self.verdicts.len()
    }

    /// Adds the changes of one more round.
    pub fn add(&mut self, decided: &Decision, shares: &ShareDelta) {
        let removed = decided.gone.iter().map(|work| (work.clone(), None));
        self.verdicts.extend(removed);
        self.add_verdicts(plan::box_verdicts(decided.verdicts.clone()));
        for (class, user, work) in &shares.departed {
            let users = self.shares.entry(Arc::clone(class)).or_default();
            let known = users.entry(user.clone()).or_default();
            known.insert(work.clone(), None);
        }
        for (owner, work) in shares.by_user() {
            let work = work.iter().cloned();
            self.set_shares_of_user(&owner.class, owner.user.clone(), work);
        }
    }

    fn add_verdicts(&mut self, verdicts: impl IntoIterator<Item = (WorkId, Box<Verdict>)>) {
        let verdicts = verdicts.into_iter();
        self.verdicts
            .extend(verdicts.map(|(work, verdict)| (work, Some(verdict))));
    }

    fn set_shares_of_user(
        &mut self,
        class: &Arc<str>,
        user: UserName,
        work: impl IntoIterator<Item = (WorkId, WorkShare)>,
    ) {
        let users = self.shares.entry(Arc::clone(class)).or_default();
        let known = users.entry(user).or_default();
        let work = work.into_iter();
        known.extend(work.map(|(id, share)| (id, Some(share))));
    }
}

impl PlanDiff {
    /// Returns the plan without verdicts. Its shares are replaced by `sums`, which has the shares
    /// of classes and users and not of single pieces of work.
    pub fn without_work(plan: &Plan, sums: &Shares) -> Plan {
        Plan {
            round: plan.round,
            at: plan.at,
            grants: plan.grants.clone(),
            vacates: plan.vacates.clone(),
            verdicts: BTreeMap::new(),
            shares: sums.clone(),
            receipts: plan.receipts.clone(),
            carried: plan.carried.clone(),
            external_planners: plan.external_planners.clone(),
        }
    }

    /// Creates a difference. `plan` is the plan that [`PlanDiff::without_work`] returned.
    pub fn new(plan: Plan, changes: WorkChanges) -> Self {
        Self { plan, changes }
    }

    /// Changes the plan that was recorded before to this plan.
    pub fn apply(self, plan: &mut Plan) {
        let before = std::mem::replace(plan, self.plan);
        plan.verdicts = before.verdicts;
        apply_changes(&mut plan.verdicts, self.changes.verdicts);
        let (mut known, mut changed) = (before.shares.classes, self.changes.shares);
        for (class, share) in &mut plan.shares.classes {
            let known = known.remove(class).map(|class| class.users);
            let mut known = known.unwrap_or_default();
            let mut changed = changed.remove(class.as_str()).unwrap_or_default();
            for (user, share) in &mut share.users {
                share.work = known.remove(user).unwrap_or_default().work;
                apply_changes(&mut share.work, changed.remove(user).unwrap_or_default());
            }
        }
    }
}
