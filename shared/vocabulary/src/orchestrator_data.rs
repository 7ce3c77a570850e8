//! Data that an orchestrator attaches to its work.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::AllocationId;

/// Work that belongs to an orchestrator, as listed in its last map.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the orchestrator sets each of them independently"
)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Orchestrated {
    /// Name of the orchestrator, for people.
    pub orchestrator: String,
    /// True for a managed reservation: one arbitrary process of a user.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub managed: bool,
    /// True for a job that does not run yet, so its growth is not predicted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
    /// True while its last processes end; it gets no more processes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completing: bool,
    /// True if its orchestrator starts the processes in its allocations. Such an allocation ends
    /// when the orchestrator lists it as settled, and not before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_processes: bool,
    /// Allocations of this work whose process has initialised.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub running: BTreeSet<AllocationId>,
}
