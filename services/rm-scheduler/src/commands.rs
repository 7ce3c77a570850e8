//! Handlers of commands, one function each.

use std::collections::BTreeSet;

use hayward_publication::{Batch, DryRunSupport, Moment};
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_rm_scheduler_policy::{differences, notes};

use crate::command::{Command, SetPolicy};
use crate::error::Refusal;
use crate::model::NewPolicy;
use crate::policy::{self, InUse};
use crate::store::Rows;
use crate::working_set::Ledger;

/// Most sentences stored about one policy change.
const MAX_CHANGES: usize = 100;

/// Returns how a command supports a dry run.
pub(crate) fn dry_run(command: &Command) -> DryRunSupport<Ledger> {
    match command {
        Command::SetPolicy(..) | Command::CopyFleet(..) | Command::WorkerPools(_) => {
            DryRunSupport::InPlace
        }
        _ => DryRunSupport::Unsupported,
    }
}

impl Ledger {
    /// Returns the classes that work asks for or holds quanta in.
    pub(crate) fn classes_in_use(&self) -> BTreeSet<String> {
        let held = self.snapshot.allocations.values();
        let demanded = self.snapshot.demand.values();
        held.map(|allocation| &allocation.class)
            .chain(demanded.filter_map(|demand| demand.class.as_ref()))
            // Work of an unknown class is already refused, so it does not block the policy.
            .filter(|class| self.policy.view().policy.classes.contains_key(*class))
            .cloned()
            .collect()
    }

    /// Returns the classes and queues that a policy must not remove. With `drop_classes`, only
    /// queues count.
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

    /// Replaces the policy as a whole, or changes nothing.
    pub(crate) fn change_policy(
        &mut self,
        change: SetPolicy,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<PolicyAnswer, Refusal> {
        let now = self.policy.view().generation;
        if change.from_generation != now {
            return Err(Refusal::Stale {
                given: change.from_generation,
                now,
            });
        }
        let in_use = self.in_use(change.drop_classes);
        let faults = policy::faults(&change.document.policy, &in_use);
        let document = change
            .document
            .without(faults)
            .map_err(Refusal::BadPolicy)?;
        let answer = PolicyAnswer {
            changes: differences(&self.policy.view().policy, &document),
            notes: notes(&document),
            moves: None,
            view: PolicyView {
                generation: now + 1,
                policy: document,
            },
        };
        if change.dry_run {
            return Ok(answer);
        }
        batch.rows.policy = Some(NewPolicy {
            generation: answer.view.generation,
            document: answer.view.policy.clone(),
            changed_by: change.changed_by,
            changed_at_ms: moment.now.unix_ms(),
            changes: shortened(answer.changes.clone()),
        });
        self.set_policy(answer.view.clone());
        batch.publish(policy::POLICY, "", "policy", &answer.view);
        // This goes into the transaction of the policy. Otherwise a crash would lose draining
        // queues.
        self.write_carried(moment, batch);
        self.publish_machines(batch);
        let (context, shown) = (self.context.clone(), answer.view.clone());
        batch.once_committed(move |_| context.view.write().policy = shown);
        Ok(answer)
    }
}

fn shortened(mut changes: Vec<String>) -> Vec<String> {
    let over = changes.len().saturating_sub(MAX_CHANGES);
    if over > 0 {
        changes.truncate(MAX_CHANGES);
        changes.push(format!("and {over} more"));
    }
    changes
}
