//! Tests of the agent as a separate process, with a fake control plane ([`fake_control_plane`]).

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should end here"
)]

mod agent;
mod containers;
mod engine;
mod engine_limits;
mod fake_control_plane;
mod fault_attribution;
mod fault_points;
mod hardening;
mod lease;
mod recovery;
mod restarts;
mod simulated;
mod task_runner;
mod unkillable_processes;
