//! The agent as its own program on this machine, and its neighbours played by [`control`].

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should end here"
)]

mod containers;
mod control;
mod engine;
mod lease;
mod runner;
mod simulated;
mod trouble;
