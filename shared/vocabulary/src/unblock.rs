//! The smallest change that would let one more process of waiting work start. The planner finds it,
//! and the owner of the work sees it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::NodeName;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Unblock {
    /// Nothing has to change: what leaves is on its way.
    Wait { leaving_processes: u64 },
    /// Quanta missing on the node that comes nearest.
    FreeRoom { node: NodeName, quanta: u64 },
    /// Raise the owner's allotment by this much.
    RaiseAllotment { bytes: u64 },
    /// Ask for at most this many quanta a process.
    AskForLess { quanta: u64 },
    /// Add a node of at least this many quanta to its pool; where it has a list, one of the list.
    AddNode { quanta: u64 },
    /// Let a node of its pool offer this named resource: `docker` by an agent with a container
    /// engine, `mount:DIR:ro` or `:rw` by the pool's `mounts` in the policy.
    OfferResource { name: String },
    /// Let this node take work: take its mark or its block off, vary it on, or bring it back.
    OpenNode { node: NodeName },
    /// Put this node into its list of machines, or ask for no list.
    ListNode { node: NodeName },
    /// Let the class have this many more quanta, by weight or by others wanting less.
    RaiseShare { quanta: u64 },
    /// Name a class that may serve it.
    NameClass,
    /// Let at least this many percent be taken back in an hour: `preemption_pool_percent_per_hour`
    /// of the policy, or for one user `preemption_user_percent_per_hour`. Or wait: what was taken
    /// back counts for an hour.
    RaisePreemptionBudget { user: bool, percent: u64 },
    #[serde(other)]
    Unknown,
}

impl Unblock {
    /// Whether it is the same kind of change, ignoring the numbers.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_compared_without_their_numbers() {
        let (one, two) = (
            Unblock::AddNode { quanta: 1 },
            Unblock::AddNode { quanta: 2 },
        );
        assert!(one.is_like(&two) && !one.is_like(&Unblock::NameClass));
        let read: Unblock = serde_json::from_str(r#"{"change":"pray","candles":2}"#).unwrap();
        assert_eq!(read, Unblock::Unknown);
    }
}
