//! Fault injection with real processes: a seeded program submits work of all kinds to a fleet of
//! separate processes, injects faults of all kinds, and checks all promises after each phase.
//!
//! [`plan`] decides from the seed alone; [`faults`] injects into a [`fleet`]; [`work`] is the work
//! of users and its proofs; [`checks`] has one function for each promise; [`run`] combines them.
//! The program uses `kill`, the network, disks and clocks only, and depends on no internals of a
//! service.

pub mod checks;
pub mod faults;
pub mod fleet;
pub mod plan;
pub mod run;
pub mod work;
