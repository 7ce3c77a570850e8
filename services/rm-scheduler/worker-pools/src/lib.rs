//! Worker pools with an external owner: the wanted number of workers, the existing workers, and the
//! events for the owner. Pure: no clock, no randomness, no I/O.
//!
//! The owner's list of workers is authoritative. The [`Pool`] requests workers, detects dead
//! workers early, and gives back the workers that the owner returned. The pool chooses a registered
//! worker to release only if the owner requests that (`release` in the size call).
//!
//! Three inputs change a pool: calls of the owner ([`commands`]), events of the platform
//! ([`platform_events`]) and time ([`time`]). [`Pool::wanted_numbers`] returns the current requests
//! to the scheduler, and [`Pool::take_events`] the events not yet delivered.

pub mod commands;
mod connect;
mod deadlines;
mod failed_start_rate;
mod idle_on_blocked_nodes;
pub mod owner_events;
pub mod platform_events;
mod pool;
pub mod time;
pub mod worker;

pub use commands::{
    Caller, CheckResult, ConnectResult, MAX_FOREIGN, Refusal, ResizeResult, SizeRequest,
};
pub use connect::Connect;
pub use idle_on_blocked_nodes::IdleReport;
pub use owner_events::{EventKind, OwnerEvent};
pub use platform_events::{Ending, PlatformEvent};
pub use pool::{Counts, Final, Mode, Owner, Pool, Rules, Stopped};
pub use time::Now;
pub use worker::{State, Worker};

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod test_platform;
#[cfg(test)]
mod worked_example_tests;
