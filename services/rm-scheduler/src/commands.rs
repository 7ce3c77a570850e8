//! Someone asked: one function per request.

use std::collections::BTreeSet;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::policy::{Policy, PolicyView};

use crate::error::Refusal;
use crate::ledger::Ledger;
use crate::policy;
use crate::store::{NewPolicy, Rows};

/// `PUT /v1/policy`
pub struct SetPolicy {
    pub document: Policy,
    /// Generation the change was made from (`If-Match`).
    pub from_generation: u64,
    pub changed_by: String,
    /// Check only.
    pub dry_run: bool,
}

impl Ledger {
    /// Classes that work names or holds room in.
    pub(crate) fn classes_in_use(&self) -> BTreeSet<String> {
        let held = self.snapshot.allocations.values();
        let asked = self.snapshot.demand.values();
        held.map(|allocation| &allocation.class)
            .chain(asked.filter_map(|demand| demand.class.as_ref()))
            // Work of a class that never was is refused already; it need not hold the policy up.
            .filter(|class| self.policy.policy.classes.contains_key(*class))
            .cloned()
            .collect()
    }

    /// Replaces the policy as a whole, or changes nothing. Running work is never harmed by a
    /// refused policy.
    pub(crate) fn change_policy(
        &mut self,
        change: SetPolicy,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<PolicyView, Refusal> {
        let now = self.policy.generation;
        if change.from_generation != now {
            return Err(Refusal::Stale {
                given: change.from_generation,
                now,
            });
        }
        let faults = policy::faults(&change.document, &self.classes_in_use());
        if !faults.is_empty() {
            return Err(Refusal::BadPolicy(faults));
        }
        let view = PolicyView {
            generation: now + 1,
            policy: change.document,
        };
        if change.dry_run {
            return Ok(view);
        }
        batch.rows.policy = Some(NewPolicy {
            generation: view.generation,
            document: view.policy.clone(),
            changed_by: change.changed_by,
            changed_at_ms: moment.now.unix_ms(),
        });
        self.set_policy(view.clone());
        let (context, shown) = (self.context.clone(), view.clone());
        batch.once_committed(move |_| context.view.write().policy = shown);
        Ok(view)
    }
}
