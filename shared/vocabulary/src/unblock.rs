//! The smallest change that would let one more process of waiting work start. The planner finds it,
//! and the owner of the work sees it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::NodeName;

/// A change that would let waiting work start. The variants are in the order in which the planner
/// tries them, the smallest change first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Unblock {
    /// No change: the space is being vacated.
    Wait { leaving_processes: u64 },
    /// Quanta missing on the nearest node.
    FreeRoom { node: NodeName, quanta: u64 },
    /// Raise the allotment of the user by these bytes.
    RaiseAllotment { bytes: u64 },
    /// Ask for at most this many quanta in each process.
    AskForLess { quanta: u64 },
    /// Add a node of at least this many quanta to its pool, or to its node list.
    AddNode { quanta: u64 },
    /// Let a node of its pool offer this named resource: `docker` by an agent with a container
    /// engine, `mount:DIR:ro` or `:rw` by the pool's `mounts` in the policy.
    OfferResource { name: String },
    /// Open this node: remove its mark or block, set it online, or repair it.
    OpenNode { node: NodeName },
    /// Add this node to its node list, or drop the list.
    ListNode { node: NodeName },
    /// Give the class this many more quanta, by weight or by less demand of others.
    RaiseShare { quanta: u64 },
    /// Name a class that may serve it.
    NameClass,
    /// Allow at least this many percent to be preempted in an hour:
    /// `preemption_pool_percent_per_hour` of the policy, or `preemption_user_percent_per_hour` of
    /// one user. Waiting helps as well, because a preemption counts for an hour.
    RaisePreemptionBudget { user: bool, percent: u64 },
    /// A change that a newer scheduler names. The planner never gives it.
    #[serde(other)]
    Unknown,
}

impl Unblock {
    /// True if it is the same kind of change, ignoring the numbers.
    pub fn is_same_kind(&self, other: &Self) -> bool {
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
        assert!(one.is_same_kind(&two) && !one.is_same_kind(&Unblock::NameClass));
        let parsed: Unblock = serde_json::from_str(r#"{"change":"pray","candles":2}"#).unwrap();
        assert_eq!(parsed, Unblock::Unknown);
    }
}
