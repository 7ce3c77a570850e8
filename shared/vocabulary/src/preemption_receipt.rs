//! Receipts of preemptions: what left, for which work, and the result. rm-scheduler writes them,
//! and job-converter shows them to both sides.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AllocationId, NodeName, Timestamp, UserName, WorkId};

/// One process that was preempted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The round that decided it.
    pub round: u64,
    pub at: Timestamp,
    /// The preempted allocation.
    pub allocation: AllocationId,
    /// Work that lost it.
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    /// Quanta that the process gave up.
    pub order: u64,
    /// Maximum milliseconds of work that must be repeated. It is the time that the process had run,
    /// or the mean time of a task if that is known and shorter, because finished tasks are not
    /// repeated.
    pub lost_ms: u64,
    /// Work that needed the space; absent when entitlements alone required the preemption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneficiary: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_user: Option<UserName>,
    pub outcome: Outcome,
}

impl Receipt {
    /// Maximum number of receipts shown with one piece of work: those of its newest rounds. A round
    /// is complete unless it alone has more.
    pub const MAX_SHOWN: usize = 16;
}

/// Use of the space that a preemption freed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    /// The space was freed for no particular work, so no start is awaited.
    #[serde(rename = "nobody")]
    NoBeneficiary,
    /// The beneficiary does not run there yet.
    Open,
    /// A process of the beneficiary started in it.
    Started {
        allocation: AllocationId,
        at: Timestamp,
        /// Milliseconds from the preemption until the process ran.
        after_ms: u64,
    },
    /// The beneficiary started elsewhere first.
    StartedElsewhere {
        allocation: AllocationId,
        node: NodeName,
    },
    /// The beneficiary never started in it.
    NotStarted { at: Timestamp, detail: String },
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_of_a_later_version_is_parsed_as_unknown() {
        let parsed: Outcome = serde_json::from_str(r#"{"state":"sold","price":3}"#).unwrap();
        assert_eq!(parsed, Outcome::Unknown);
        let open = serde_json::to_string(&Outcome::Open).unwrap();
        assert_eq!(open, r#"{"state":"open"}"#);
    }
}
