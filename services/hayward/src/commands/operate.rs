//! Commands that operators keep a fleet in order with.

pub mod audit;
pub mod block;
pub mod blocks;
pub mod doctor;
pub mod moves;
pub mod node;
pub mod nodes;
pub mod orchestrators;
pub mod policy;
pub mod pool;
pub mod status;
