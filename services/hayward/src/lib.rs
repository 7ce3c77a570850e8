//! The `hayward` command: a fleet by one word (`up`, `demo`), and all a person does with one.
//!
//! It links all services, and is the only crate that does. What it does to a fleet it does over the
//! same HTTP as everybody else, with tokens from the state directory.

pub mod agents;
pub mod amounts;
pub mod backup;
pub mod cli;
pub mod commands;
pub mod connection;
pub mod database;
pub mod fleet;
pub mod output;
pub mod prepare;
pub mod remote_endpoints;
pub mod state;
