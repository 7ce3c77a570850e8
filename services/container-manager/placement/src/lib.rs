//! Placement actions as pure functions: when a request may start, the next step of an action, and
//! how it ends.
//!
//! [`Placements`] holds only the actions. It reads and changes containers through [`Environment`].
//! Every step depends only on the current state. Repeated facts therefore change nothing, and a new
//! term resumes from the stored rows. There is no clock, no I/O and no randomness.
//!
//! The permanent demand of a process restarts it whenever it is down. rm-scheduler suspends that
//! demand while an action has an open request for the process. A failed action therefore starts
//! nothing: the action withdraws its request, and the demand applies again (P1).

mod admit;
mod advance;
mod container_access;
mod events;
mod model;
mod placement_request;
mod placements;
mod status;
mod step;
mod takeover;

pub use container_access::{Environment, LiveContainer, LiveState};
pub use events::PlacementEvent;
pub use model::{PlacementRequest, Refusal, Submitted, TimeLimits};
pub use placement_request::{Placement, Progress, ResourceRequest};
pub use placements::Placements;
pub use status::{Destination, Phase, QueueReason, Reason, Status};

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod test_fleet;
