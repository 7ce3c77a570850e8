//! Rows of table `clearing`.

use std::collections::BTreeMap;

use hayward_vocabulary::{AllocationId, Timestamp, WorkId};
use serde::{Deserialize, Serialize};

/// What is remembered of one order to empty something, as it is in rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evacuation {
    pub number: u64,
    pub revision: u64,
    pub since: Timestamp,
    /// When it began to take things off; a mark never does.
    #[serde(default)]
    pub begun: Option<Timestamp>,
    #[serde(default)]
    pub members: BTreeMap<AllocationId, EvacuatedProcess>,
}

/// Something that stood there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuatedProcess {
    pub work: WorkId,
    /// Later attempts of the work than this one are successors.
    pub after: u64,
    /// Told to leave.
    #[serde(default, rename = "told")]
    pub ordered_to_leave: bool,
    /// Its next place was reserved before it was told, and is started after it.
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
    /// This one runs in its place.
    Replaced(AllocationId),
    /// Its work wants no more than it has.
    Unwanted,
}

impl EvacuatedProcess {
    pub fn is_open(&self) -> bool {
        self.ended && self.settled.is_none()
    }

    /// Taken off, and not there again (W5).
    pub fn is_moving(&self) -> bool {
        self.ordered_to_leave && self.settled.is_none()
    }
}
