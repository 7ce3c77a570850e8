//! Packing of pods with GPUs onto nodes: choice of the node and of its GPUs.
//!
//! [`Scorer`] is pure and does not depend on the simulation. It can choose the node wherever the
//! rules of fair share leave that choice free.

pub mod defrag;
mod fragmentation;
pub mod inflation;
pub mod planned;
mod policy;
mod site;

pub use fragmentation::{Demand, Fragmentation};
pub use policy::{Policy, Scorer};
pub use site::{Pod, Shape, Site, Sites};

#[cfg(test)]
mod tests;
