//! Placement actions (container placement), pure: which request may begin, what an action does
//! next, and how it ends.
//!
//! The machine holds the actions and nothing else. What stands where it sees through [`Environment`], and
//! through it acts; so it is driven by facts and not by calls, a fact that comes twice changes
//! nothing, and a new term goes on from the rows. No clock, no i/o, no randomness (D5).
//!
//! On the ladder the everyday restart of a process is its demand, which never goes away; the
//! scheduler holds it back only while a request of an action stands in for one that has ended.
//! So an action that fails has nothing to start: it withdraws its request, and by that leaves
//! exactly one asking (P1).

mod admit;
mod advance;
mod composite;
mod environment;
mod events;
mod model;
mod placement;
mod placements;
mod status;
mod step;

pub use environment::{Environment, LiveContainer, LiveState};
pub use events::PlacementEvent;
pub use model::{PlacementRequest, Refusal, Rules, Submitted};
pub use placement::{Placement, Progress, ResourceRequest};
pub use placements::Placements;
pub use status::{Destination, Phase, QueueReason, Reason, Status};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod test_fleet;
