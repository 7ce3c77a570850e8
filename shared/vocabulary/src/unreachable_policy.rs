//! Policy for work on an unreachable node, which the owner chooses at submission (W7).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node that does not answer has stopped, or is only cut off and its processes still run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WhenUnreachable {
    /// A successor starts as soon as the node is lost. A process that still runs there is stopped
    /// when the node is back; until then two may run at once.
    #[default]
    Replace,
    /// A successor starts this long after the node was lost, unless it comes back before that: then
    /// the work goes on where it was.
    ReplaceAfter { ms: u64 },
    /// No successor: the work waits for its node, and goes on when it is back.
    Wait,
    /// Never two at once (I4): the node itself stops it when its lease runs out, and a successor
    /// starts only after that.
    Exclusive,
}

impl WhenUnreachable {
    /// True if the node has to stop it without help when its lease ends.
    pub fn is_exclusive(self) -> bool {
        self == Self::Exclusive
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
