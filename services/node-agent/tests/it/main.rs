//! Tests of the agent as a separate process, with a fake control plane ([`fake_control_plane`]).

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should end here"
)]

mod accounts;
mod agent_process;
mod container_engine;
mod container_engine_limits;
mod containers;
mod fake_control_plane;
mod fault_attribution;
mod fault_points;
mod hardening;
mod launcher;
mod lease;
mod recovery;
mod restarts;
mod simulated_nodes;
mod task_runner;
mod unkillable_processes;
