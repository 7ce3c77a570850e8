//! Wire form of the reaction to an unreachable node (W7).

use hayward_vocabulary::WhenUnreachable;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `"replace"`, `"wait"`, `"exclusive"` or `{"replace_after_ms": 600000}`; or the form of a view,
/// with its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "write \"replace\", \"wait\", \"exclusive\" or {\"replace_after_ms\": 600000}"
)]
pub enum UnreachableChoice {
    Word(UnreachableWord),
    After(ReplaceAfter),
    Shown(WhenUnreachable),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnreachableWord {
    /// A successor starts as soon as the node is lost. The default.
    Replace,
    /// No successor: the process continues when its node is back.
    Wait,
    /// Never two at once: an isolated node ends the process itself, and a successor starts only
    /// after that.
    Exclusive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceAfter {
    /// A successor starts this many milliseconds after the node was lost, unless it is back before.
    pub replace_after_ms: u64,
}

impl UnreachableChoice {
    pub fn meaning(self) -> WhenUnreachable {
        match self {
            Self::Word(UnreachableWord::Replace) => WhenUnreachable::Replace,
            Self::Word(UnreachableWord::Wait) => WhenUnreachable::Wait,
            Self::Word(UnreachableWord::Exclusive) => WhenUnreachable::Exclusive,
            Self::After(ReplaceAfter {
                replace_after_ms: ms,
            }) => WhenUnreachable::ReplaceAfter { ms },
            Self::Shown(shown) => shown,
        }
    }
}
