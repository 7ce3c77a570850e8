//! Commands that measure this machine, or run a scheduler in simulated time.

pub mod bench;
pub mod simulate;
