//! Placement actions as pure functions: when a request may start, the next step of an action, and
//! how it ends.
//!
//! [`Placements`] holds only the actions. It reads and changes containers through [`Environment`].
//! Every step depends on the current state, so repeated facts change nothing and a new term resumes
//! from the rows. There is no clock, no I/O and no randomness.
//!
//! The permanent demand of a process restarts it whenever it is down. rm-scheduler suspends that
//! demand while a request of an action replaces it. A failed action therefore starts nothing: it
//! withdraws its request, and the demand applies again (P1).

mod admit;
mod advance;
mod environment;
mod events;
mod model;
mod placement;
mod placements;
mod status;
mod step;
mod takeover;

pub use environment::{Environment, LiveContainer, LiveState};
pub use events::PlacementEvent;
pub use model::{PlacementRequest, Refusal, Submitted, TimeLimits};
pub use placement::{Placement, Progress, ResourceRequest};
pub use placements::Placements;
pub use status::{Destination, Phase, QueueReason, Reason, Status};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod test_fleet;
