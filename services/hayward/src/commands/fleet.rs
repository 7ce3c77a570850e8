//! Commands that make, start, save and restore a fleet.

pub mod backup;
pub mod completion;
pub mod config;
pub mod demo;
pub mod enrol;
pub mod healthcheck;
pub mod node_agent;
pub mod preflight;
pub mod prepare;
pub mod restore;
pub mod run_service;
pub mod token;
pub mod up;
