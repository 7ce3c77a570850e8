//! Data that an orchestrator attaches to its work.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::AllocationId;

/// Work that belongs to an orchestrator, as the last map of that has it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is said by the orchestrator on its own"
)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Orchestrated {
    /// Its name, for people.
    pub orchestrator: String,
    /// An arbitrary process of a user: a managed reservation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub managed: bool,
    /// A job that does not run yet: what it can use is not predicted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
    /// Its last processes end; it gets no more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completing: bool,
    /// Its processes are started by its orchestrator, in the shares it is given. Such a share is
    /// over when it is listed as settled, and not before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_processes: bool,
    /// Of those, shares whose process has initialised.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub running: BTreeSet<AllocationId>,
}
