//! The `hayward` command: starts a fleet (`up`, `demo`) and operates it.
//!
//! This is the only crate that links all services. Its commands use the public HTTP API, with
//! tokens from the state directory.

pub mod agents;
pub mod backup;
pub mod cli;
pub mod commands;
pub mod connection;
pub mod database;
pub mod local_services;
pub mod output;
pub mod prepare;
pub mod remote_connection_flags;
pub mod state_directory;
pub mod value_parsers;
