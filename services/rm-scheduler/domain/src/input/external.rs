//! Pools whose room is given out by a planner outside (D7), as far as a round may know of it: an
//! answer is an input like any other, so that rounds stay pure and can be replayed.
//!
//! Names are texts here: an answer may name anything, and what nobody knows is refused with it.

use std::collections::BTreeMap;

use hayward_vocabulary::{Timestamp, WorkId};
use serde::{Deserialize, Serialize};

/// What is known of the planner of one top-level pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outside {
    /// No round has used it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// What came of the last answer that a round has used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard: Option<Heard>,
    /// Why it did not answer when it was asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Of the question it answers; grows. One is used once.
    pub number: u64,
    pub grants: Vec<Place>,
    pub vacates: Vec<Leave>,
    /// By work: its words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub notes: BTreeMap<String, String>,
}

/// What answers took back lately in one pool, so that no two of them undo each other for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moved {
    /// When work last gave up a place.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hit: BTreeMap<WorkId, Timestamp>,
    /// For whom places were given up that it has not been granted since, and when each was.
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
pub struct Place {
    pub work: String,
    pub node: String,
    pub processes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    pub allocation: String,
    pub detail: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heard {
    /// What it said of work that it did not place.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<WorkId, String>,
    /// Why the first of its steps for this work was not taken.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<WorkId, String>,
}
