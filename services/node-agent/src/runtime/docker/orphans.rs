//! Periodically removes orphaned containers, which have the label of this agent but no folder.
//! Containers of other owners are never touched, even if they name the same node (W16).

use std::collections::HashMap;

use hayward_vocabulary::AllocationId;

use super::{Docker, container_spec};

impl Docker {
    /// Removes orphaned containers at each interval, without end.
    pub(super) async fn sweep(self) {
        let mut reported_count = 0;
        loop {
            let label = format!("{}={}", container_spec::NODE, self.0.settings.node);
            // If the engine does not answer, the next sweep tries again.
            if let Ok(found) = self.0.engine.list_with_label(label).await {
                let mut foreign_count = 0;
                for (id, labels) in found {
                    if labels.get(container_spec::OWNER) != Some(&self.0.settings.owner) {
                        foreign_count += 1;
                    } else if !self.is_wanted(&labels) {
                        tracing::warn!(container = id, "an orphaned container is removed");
                        // A failure is retried at the next sweep.
                        let _ = self.0.engine.remove(&id).await;
                    }
                }
                if foreign_count > reported_count {
                    tracing::warn!(
                        strangers = foreign_count,
                        "containers with this node's name belong to another agent and are left \
                        alone"
                    );
                }
                reported_count = foreign_count;
            }
            tokio::time::sleep(self.0.engine.limits.sweep_interval).await;
        }
    }

    /// Returns whether a folder of this incarnation exists and contains no exit. The folder is
    /// created before the container, so a container without a folder was forgotten.
    fn is_wanted(&self, labels: &HashMap<String, String>) -> bool {
        let id = labels.get(container_spec::ALLOCATION);
        let Some(id) = id.and_then(|id| AllocationId::new(id.as_str()).ok()) else {
            return false;
        };
        let folder = self.folder(&id);
        let incarnation = labels
            .get(container_spec::INCARNATION)
            .and_then(|text| text.parse().ok());
        folder
            .read_launch_record()
            .is_some_and(|record| Some(record.incarnation) == incarnation)
            && folder.read_exit().is_none()
    }
}
