//! Input of a round from external planners. A response is an input like any other, so a round
//! depends on its snapshot alone and can be replayed (D7).
//!
//! Names are plain strings, because a response may contain unknown names. A round refuses them.

use std::collections::BTreeMap;

use hayward_vocabulary::{Timestamp, WorkId};
use serde::{Deserialize, Serialize};

/// State of the external planner of one top-level pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalPlannerState {
    /// Response that no round has used yet.
    #[serde(rename = "answer", skip_serializing_if = "Option::is_none")]
    pub response: Option<PlannerResponse>,
    /// Result of the last response that a round used. `None` if no round used one.
    #[serde(rename = "heard", skip_serializing_if = "Option::is_none")]
    pub last_result: Option<ResponseResult>,
    /// Reason why the last request had no response. `None` if it had one.
    #[serde(rename = "silence", skip_serializing_if = "Option::is_none")]
    pub no_response_reason: Option<String>,
}

/// Response of an external planner: the steps that it requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannerResponse {
    /// Number of the request that this response answers. It ascends, and each response is used
    /// once.
    pub number: u64,
    pub grants: Vec<RequestedGrant>,
    pub vacates: Vec<RequestedVacate>,
    /// Texts for users, by work.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub notes: BTreeMap<String, String>,
}

/// Recent preemptions by the external planner of one pool. A round refuses responses
/// that would undo each other forever.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecentPreemptions {
    /// Time at which each piece of work was last preempted.
    #[serde(rename = "hit", skip_serializing_if = "BTreeMap::is_empty")]
    pub preempted_at: BTreeMap<WorkId, Timestamp>,
    /// Times at which a preemption freed space for each piece of work. A grant to the work removes
    /// one time.
    #[serde(rename = "served", skip_serializing_if = "BTreeMap::is_empty")]
    pub freed_for: BTreeMap<WorkId, Vec<Timestamp>>,
}

impl RecentPreemptions {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.preempted_at.is_empty() && self.freed_for.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedGrant {
    pub work: String,
    pub node: String,
    pub processes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedVacate {
    pub allocation: String,
    /// Explanation for users.
    pub detail: String,
}

/// Texts that a response leaves behind for waiting work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseResult {
    /// Texts for work that was not placed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<WorkId, String>,
    /// Reason for refusing a step, by work. Several refused steps give the reason of the first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<WorkId, String>,
}
