//! The agent as its own program on this machine, and its neighbours played by [`control`].

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should end here"
)]

mod agent;
mod containers;
mod control;
mod engine;
mod engine_limits;
mod faults;
mod hardening;
mod lease;
mod recovery;
mod restarts;
mod runner;
mod simulated;
mod stubborn;
mod trouble;
