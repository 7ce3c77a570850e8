//! Someone asked: one function per request.

use std::collections::BTreeSet;

use hayward_publication::{Batch, Moment, Trial};
use hayward_rm_scheduler_api::policy::{PolicyAnswer, PolicyView};
use hayward_rm_scheduler_policy::{differences, notes};

use crate::command::{Command, SetPolicy};
use crate::error::Refusal;
use crate::model::NewPolicy;
use crate::policy::{self, InUse};
use crate::store::Rows;
use crate::working_set::Ledger;

/// Lines kept of what a change of the policy changed.
const LINES_KEPT: usize = 100;

/// What may be tried, and what a trial looks at (A10).
pub(crate) fn trial(command: &Command) -> Trial<Ledger> {
    match command {
        Command::SetPolicy(..) | Command::CopyFleet(..) | Command::WorkerPools(_) => {
            Trial::ByItself
        }
        _ => Trial::Never,
    }
}

impl Ledger {
    /// Classes that work names or holds room in.
    pub(crate) fn classes_in_use(&self) -> BTreeSet<String> {
        let held = self.snapshot.allocations.values();
        let asked = self.snapshot.demand.values();
        held.map(|allocation| &allocation.class)
            .chain(asked.filter_map(|demand| demand.class.as_ref()))
            // Work of a class that never was is refused already; it need not hold the policy up.
            .filter(|class| self.policy.view().policy.classes.contains_key(*class))
            .cloned()
            .collect()
    }

    /// What a policy must not take away; `drop_classes` lets it.
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

    /// Replaces the policy as a whole, or changes nothing. Running work is never harmed by a
    /// refused policy.
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
        // With the policy, or a crash would lose what drains.
        self.write_carried(moment, batch);
        self.publish_machines(batch);
        let (context, shown) = (self.context.clone(), answer.view.clone());
        batch.once_committed(move |_| context.view.write().policy = shown);
        Ok(answer)
    }
}

fn shortened(mut changes: Vec<String>) -> Vec<String> {
    let over = changes.len().saturating_sub(LINES_KEPT);
    if over > 0 {
        changes.truncate(LINES_KEPT);
        changes.push(format!("and {over} more"));
    }
    changes
}
