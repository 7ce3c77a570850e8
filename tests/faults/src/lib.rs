//! Fault injection with real processes. A seeded program submits work of all kinds to a fleet of
//! separate processes and injects faults of all kinds. It checks all promises after each phase.
//!
//! [`plan`] decides from the seed alone. [`faults`] injects into a [`fleet`]. [`work`] is the work
//! of users and its proofs. [`checks`] has one function for each promise, and [`run`] combines them
//! all. The program uses `kill`, the network, disks and clocks only, and depends on no internals of
//! a service.

pub mod checks;
pub mod faults;
pub mod fleet;
pub mod plan;
pub mod run;
pub mod work;
