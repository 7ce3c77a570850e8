//! Pools of external planners, as far as a round may know of them. A response is an input like any
//! other, so rounds stay pure and can be replayed (D7).
//!
//! Names are texts: a response may name anything, and unknown names are refused.

use std::collections::BTreeMap;

use hayward_vocabulary::{Timestamp, WorkId};
use serde::{Deserialize, Serialize};

/// State of the external planner of one top-level pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outside {
    /// Response that no round has used yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Result of the last response that a round used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard: Option<Heard>,
    /// Why the last request had no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Number of the request it answers; ascending. Each response is used once.
    pub number: u64,
    pub grants: Vec<RequestedGrant>,
    pub vacates: Vec<RequestedVacate>,
    /// Text for users, by work.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub notes: BTreeMap<String, String>,
}

/// Recent moves in one pool, so that responses do not undo each other for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moved {
    /// Time at which work last lost a place.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hit: BTreeMap<WorkId, Timestamp>,
    /// Work for which places were vacated and that got no grant since, with the time of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub served: BTreeMap<WorkId, Vec<Timestamp>>,
}

impl Moved {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hit.is_empty() && self.served.is_empty()
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
    pub detail: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heard {
    /// Text for work that was not placed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<WorkId, String>,
    /// Why the first of its steps was refused, by work.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<WorkId, String>,
}
