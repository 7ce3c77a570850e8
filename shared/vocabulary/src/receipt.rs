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
    /// What was taken back.
    pub allocation: AllocationId,
    /// Whose it was.
    pub work: WorkId,
    pub user: UserName,
    pub node: NodeName,
    /// Quanta given up.
    pub order: u64,
    /// Milliseconds of work to be done again, at most: the time it had run, and of a job whose mean
    /// task is known no longer than that, because finished tasks are kept.
    pub lost_ms: u64,
    /// Absent when the counts alone said so, in nobody's favour in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneficiary: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_user: Option<UserName>,
    pub outcome: Outcome,
}

impl Receipt {
    /// Most receipts shown with one piece of work: those of its newest rounds. A round is complete
    /// unless it alone has more.
    pub const TOLD: usize = 16;
}

/// What came of room that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    /// It was made for nobody in particular, so nobody is waited for.
    Nobody,
    /// The beneficiary does not run there yet.
    Open,
    /// A process of the beneficiary came to run in it.
    Started {
        allocation: AllocationId,
        at: Timestamp,
        /// Milliseconds from the order to leave until it ran.
        after_ms: u64,
    },
    /// The beneficiary found other room first.
    StartedElsewhere {
        allocation: AllocationId,
        node: NodeName,
    },
    /// The beneficiary never came to run in it.
    NotStarted { at: Timestamp, detail: String },
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_of_a_later_version_is_parsed_as_unknown() {
        let read: Outcome = serde_json::from_str(r#"{"state":"sold","price":3}"#).unwrap();
        assert_eq!(read, Outcome::Unknown);
        let open = serde_json::to_string(&Outcome::Open).unwrap();
        assert_eq!(open, r#"{"state":"open"}"#);
    }
}
