//! Fault injection with real processes. A program submits work of all kinds to a fleet of separate
//! processes and injects random faults of all kinds. After each phase, the program checks what
//! Hayward promises to users, for example that acknowledged work is never lost.
//!
//! - [`plan`] derives submissions, operations and faults from a seed.
//! - [`fleet`] starts the processes, and [`faults`] injects faults into them.
//! - [`work`] submits work. Its programs write proofs of their runs.
//! - [`checks`] has one function for each promise.
//! - [`run`] combines all of these.
//!
//! Faults use only `kill`, the network, disks and clocks, and no internals of a service.

pub mod checks;
pub mod faults;
pub mod fleet;
pub mod plan;
pub mod run;
pub mod work;
