//! Handles the command that replaces the policy.

use std::collections::BTreeSet;

use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_rm_scheduler_policy::{differences, notes};

use crate::command::SetPolicy;
use crate::error::Refusal;
use crate::model::NewPolicy;
use crate::policy_check::{self, InUse};
use crate::store::Rows;
use crate::working_set::Ledger;

/// Maximum number of stored sentences about one policy change.
const MAX_CHANGES: usize = 100;

impl Ledger {
    /// Returns the classes that demand names or that allocations belong to.
    pub(crate) fn classes_in_use(&self) -> BTreeSet<String> {
        let allocations = self.snapshot.allocations.values();
        let demanded = self.snapshot.demand.values();
        allocations
            .map(|allocation| &allocation.class)
            .chain(demanded.filter_map(|demand| demand.class.as_ref()))
            // Work of a class that the policy does not have is refused anyway.
            .filter(|class| self.policy.view().policy.classes.contains_key(*class))
            .cloned()
            .collect()
    }

    /// Returns the classes and queues that a new policy must not break. With `drop_classes`,
    /// classes may be removed, so none is returned.
    pub(crate) fn in_use(&self, drop_classes: bool) -> InUse {
        let classes = if drop_classes {
            BTreeSet::new()
        } else {
            self.classes_in_use()
        };
        InUse {
            classes,
            queues: self.queues_in_use(),
            may_drop: drop_classes,
        }
    }

    /// Replaces the policy, or changes nothing if it is refused or the change is a dry run.
    pub(crate) fn change_policy(
        &mut self,
        change: SetPolicy,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<PolicyAnswer, Refusal> {
        let current = self.policy.view().generation;
        if change.from_generation != current {
            return Err(Refusal::Stale {
                requested: change.from_generation,
                current,
            });
        }
        let in_use = self.in_use(change.drop_classes);
        let faults = policy_check::faults(&change.document.policy, &in_use);
        let document = change
            .document
            .into_policy(faults)
            .map_err(Refusal::BadPolicy)?;
        let response = PolicyAnswer {
            changes: differences(&self.policy.view().policy, &document),
            notes: notes(&document),
            moves: None,
            view: PolicyView {
                generation: current + 1,
                policy: document,
            },
        };
        if change.dry_run {
            return Ok(response);
        }
        batch.rows.policy = Some(NewPolicy {
            generation: response.view.generation,
            document: response.view.policy.clone(),
            changed_by: change.changed_by,
            changed_at_ms: moment.now.unix_ms(),
            changes: shorten(response.changes.clone()),
        });
        self.set_policy(response.view.clone());
        batch.publish(policy_check::POLICY, "", "policy", &response.view);
        // The rows of draining queues are written in the transaction of the policy. Otherwise a
        // crash would lose these queues.
        self.write_carried(moment, batch);
        self.publish_machines(batch);
        let (context, new_view) = (self.context.clone(), response.view.clone());
        batch.once_committed(move |_| context.view.write().policy = new_view);
        Ok(response)
    }
}

/// Shortens the list to [`MAX_CHANGES`] sentences, and says how many are left out.
fn shorten(mut changes: Vec<String>) -> Vec<String> {
    let excess = changes.len().saturating_sub(MAX_CHANGES);
    if excess > 0 {
        changes.truncate(MAX_CHANGES);
        changes.push(format!("and {excess} more"));
    }
    changes
}
