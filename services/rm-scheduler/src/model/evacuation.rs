//! Rows of table `clearing`.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, Timestamp, WorkId};
use serde::{Deserialize, Serialize};

/// One order to evacuate a node or a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evacuation {
    pub number: u64,
    pub revision: u64,
    pub since: Timestamp,
    /// Time of the first process that had to leave; none for a mark.
    #[serde(default)]
    pub begun: Option<Timestamp>,
    #[serde(default)]
    pub members: BTreeMap<AllocationId, EvacuatedProcess>,
}

/// A process that an evacuation concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuatedProcess {
    pub work: WorkId,
    /// Attempts of the work after this one are successors.
    pub after: u64,
    /// True once it was ordered to leave.
    #[serde(default, rename = "told")]
    pub ordered_to_leave: bool,
    /// Its successor was reserved before the order to leave, and starts after it.
    #[serde(default)]
    pub place_first: bool,
    #[serde(default)]
    pub ended: bool,
    #[serde(default)]
    pub settled: Option<Settled>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// This successor runs.
    Replaced(AllocationId),
    /// The work needs no further process.
    Unwanted,
}

impl EvacuatedProcess {
    pub fn is_open(&self) -> bool {
        self.ended && self.settled.is_none()
    }

    /// True from the order to leave until a successor runs.
    pub fn is_moving(&self) -> bool {
        self.ordered_to_leave && self.settled.is_none()
    }
}
