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

mod action_loop;
mod action_step;
mod container_access;
mod destination;
mod events;
mod placement;
mod placements;
mod start_queued_request;
mod status;
mod submission;
mod takeover;
mod time_limits;

pub use container_access::{Environment, LiveContainer, LiveState};
pub use destination::Destination;
pub use events::PlacementEvent;
pub use placement::{Placement, Progress, ResourceRequest};
pub use placements::Placements;
pub use status::{Phase, QueueReason, Reason, Status};
pub use submission::{PlacementRequest, Refusal, Submitted};
pub use time_limits::TimeLimits;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod test_fleet;
