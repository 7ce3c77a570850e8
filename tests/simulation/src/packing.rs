//! Packing of pods with GPUs onto nodes: choice of the node and of its GPUs. A pod is a job with
//! one task.
//!
//! [`Scorer`] does not depend on the simulation. It can choose the node wherever the rules of fair
//! share leave that choice free.

pub mod defrag;
mod fragmentation;
mod gpu_node;
pub mod inflation;
pub mod planner_inflation;
mod policy;

pub use fragmentation::{Demand, Fragmentation};
pub use gpu_node::{GpuNode, GpuNodes, Pod, Shape};
pub use policy::{Policy, Scorer};

#[cfg(test)]
mod tests;
