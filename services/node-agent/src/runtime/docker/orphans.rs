//! Containers nobody asks for any more: those with this agent's own label and no folder that wants
//! them. They are ended and dropped, within a minute of the agent's start and ever after (W16).
//! Containers without the label are strangers, whoever made them, and so are those of another
//! agent, even one of the same name.

use std::collections::HashMap;

use hayward_vocabulary::AllocationId;

use super::{Docker, container_spec};

impl Docker {
    pub(super) async fn sweep(self) {
        let mut warned = 0;
        loop {
            let label = format!("{}={}", container_spec::NODE, self.0.rules.node);
            // An engine that does not answer is asked again.
            if let Ok(found) = self.0.engine.labelled(label).await {
                let mut strangers = 0;
                for (id, labels) in found {
                    if labels.get(container_spec::OWNER) != Some(&self.0.rules.owner) {
                        strangers += 1;
                    } else if !self.is_wanted(&labels) {
                        tracing::warn!(container = id, "a container nobody asks for is removed");
                        // What fails is found again.
                        let _ = self.0.engine.remove(&id).await;
                    }
                }
                if strangers > warned {
                    tracing::warn!(
                        strangers,
                        "containers of this node's name belong to another agent; they are left"
                    );
                }
                warned = strangers;
            }
            tokio::time::sleep(self.0.engine.limits.sweep).await;
        }
    }

    /// Whether a folder waits for its end. The folder is older than the container, so one that is
    /// missing now was forgotten.
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
            .order()
            .is_some_and(|order| Some(order.incarnation) == incarnation)
            && folder.exit().is_none()
    }
}
