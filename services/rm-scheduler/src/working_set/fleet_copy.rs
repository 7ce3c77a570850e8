//! Copies of the fleet for readers, as it is and as it would be under another policy.

use std::sync::Arc;

use hayward_rm_scheduler_domain::Snapshot;
use hayward_rm_scheduler_policy::Rules;

use crate::command::{FleetCopy, PinnedWork, PolicyPreview, PreviewedFleet};
use crate::policy_check;
use crate::working_set::Ledger;

impl Ledger {
    /// Copies the fleet. With a preview, the copy also has the fleet under the previewed policy, or
    /// the faults of that policy.
    pub(crate) fn copy_fleet(&self, preview: Option<&PolicyPreview>) -> FleetCopy {
        let previewed_fleet = preview.map(|preview| {
            let faults = policy_check::faults(&preview.policy, &self.in_use(preview.drop_classes));
            if faults.is_empty() {
                let rules = Arc::new(Rules::new(&preview.policy));
                Ok(PreviewedFleet {
                    snapshot: self.snapshot_with_rules(&rules),
                    rules,
                })
            } else {
                Err(faults)
            }
        });
        FleetCopy {
            preview: previewed_fleet,
            silent: self.timing.stale_neighbour(),
            pinned: Arc::new(self.pinned()),
            ..FleetCopy::new(&self.snapshot, self.policy.rules().clone())
        }
    }

    /// Returns the works whose demand names the node of their process.
    fn pinned(&self) -> Vec<PinnedWork> {
        let all = self.followed.demand().iter().filter_map(|(_, entry)| {
            Some(PinnedWork {
                work: entry.work.clone(),
                host: entry.host.clone()?,
                machines: entry.machines.iter().cloned().collect(),
            })
        });
        all.collect()
    }

    /// Returns the fleet as it would be under another policy.
    pub(crate) fn snapshot_with_rules(&self, rules: &Rules) -> Snapshot {
        let mut snapshot = Snapshot::clone(&self.snapshot);
        rules.apply_to(&mut snapshot);
        self.add_draining_queues(&mut snapshot);
        snapshot.tunables.cycle_ms = self.context.settings.round_max_ms;
        for (_, entry) in self.followed.nodes().iter() {
            let node = self.planner_node(entry, &snapshot, rules);
            snapshot.nodes.insert(entry.node.clone(), node);
        }
        snapshot
    }
}
