//! Policy for work on an unreachable node, which the owner chooses at submission (W7).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// When a successor of work starts whose node does not answer. Such a node has stopped, or it is
/// only cut off and its processes still run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WhenUnreachable {
    /// A successor starts as soon as the node is lost. A process that still runs there is stopped
    /// when the node is back; until then two may run at once.
    #[default]
    Replace,
    /// A successor starts this long after the node was lost. If the node comes back before that,
    /// the work continues there.
    ReplaceAfter { ms: u64 },
    /// No successor starts: the work waits for its node, and continues when the node is back.
    Wait,
    /// Two processes never run at once: the node itself stops the process when its lease runs out,
    /// and a successor starts only after that (I4).
    Exclusive,
}

impl WhenUnreachable {
    /// True if the node must stop the process by itself when the lease ends.
    pub fn is_exclusive(self) -> bool {
        self == Self::Exclusive
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
