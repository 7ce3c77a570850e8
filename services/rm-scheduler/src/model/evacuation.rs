//! Evacuations of nodes and workers, as stored in table `clearing`.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, Timestamp, WorkId};
use serde::{Deserialize, Serialize};

/// One order to evacuate a node or a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evacuation {
    /// Number of the block (`removal_no`) or of the drain.
    pub number: u64,
    /// Revision of the commit that began the evacuation.
    pub revision: u64,
    pub since: Timestamp,
    /// Time at which the first process had to leave. `None` for a mark, which vacates nothing.
    #[serde(default)]
    pub begun: Option<Timestamp>,
    /// The processes of the evacuation.
    #[serde(default)]
    pub members: BTreeMap<AllocationId, EvacuatedProcess>,
}

/// A process that an evacuation concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuatedProcess {
    pub work: WorkId,
    /// Number of the attempt that was evacuated. Later attempts of the work are successors.
    #[serde(rename = "after")]
    pub evacuated_incarnation: u64,
    /// True once the process was ordered to leave.
    #[serde(default, rename = "told")]
    pub ordered_to_leave: bool,
    /// True if its successor was reserved before the order to leave. The successor starts after the
    /// process has ended.
    #[serde(default, rename = "place_first")]
    pub successor_reserved: bool,
    /// True once the process has ended.
    #[serde(default)]
    pub ended: bool,
    /// How the move of the process ended. `None` until then.
    #[serde(default)]
    pub settled: Option<MoveOutcome>,
}

/// How the move of a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveOutcome {
    /// This successor runs.
    Replaced(AllocationId),
    /// The work needs no further process.
    Unwanted,
}

impl EvacuatedProcess {
    pub fn awaits_successor(&self) -> bool {
        self.ended && self.settled.is_none()
    }

    /// Returns true from the order to leave until a successor runs or none is needed.
    pub fn is_moving(&self) -> bool {
        self.ordered_to_leave && self.settled.is_none()
    }
}
