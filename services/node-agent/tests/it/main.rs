//! Runs the agent as its own program, with a fake control plane ([`control`]).

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should end here"
)]

mod agent;
mod containers;
mod control;
mod engine;
mod engine_limits;
mod fault_attribution;
mod faults;
mod hardening;
mod lease;
mod recovery;
mod restarts;
mod simulated;
mod task_runner;
mod unkillable;
