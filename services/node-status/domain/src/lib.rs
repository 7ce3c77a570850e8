//! The pure heart of node-status: from what is known of a node to how it is.
//!
//! [`judge`] sees one node and its silence; [`brake`] sees a whole pool and says when so many nodes
//! fell silent together that the fault is more likely ours than theirs (B1); [`twins`] notices two
//! agents that report as one node (F28), [`flaps`] one that comes and goes (F33). [`drain`] says
//! how far the emptying of a node is (I17), and [`room`] whether its pool can do without it (B4).
//! [`limit`] holds a node to what it was enrolled for (S15), [`lease`] says how long exclusive work
//! may still run there (W7), [`rhythm`] how often a node of so large a fleet has to be heard.
//!
//! Nothing here reads a clock: instants are milliseconds of one monotonic clock that the caller
//! owns, so an outage of ours is never held against a node (B2).

pub mod brake;
pub mod claimed_size;
pub mod drain;
pub mod duplicate_agents;
pub mod flapping;
pub mod format;
pub mod health;
pub mod heartbeat_period;
pub mod lease;
pub mod overdue;
pub mod pool_minimum;

pub use brake::{Brake, Pool};
pub use duplicate_agents::Twins;
pub use flapping::Flaps;
pub use health::{Due, Health, Judgement, Limits, Next, Record, judge};
