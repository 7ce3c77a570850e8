//! Commands with which operators manage a fleet.

pub mod accounts;
pub mod audit;
pub mod block;
pub mod blocks;
pub mod doctor;
pub mod moves;
pub mod node;
pub mod nodes;
pub mod orchestrators;
pub mod policy;
pub mod status;
pub mod worker_pool;
