//! Packing pods with gpus onto nodes: which node, and which gpus of it.
//!
//! [`Scorer`] is pure and knows nothing of the simulation around it; where fair-share rules leave
//! the choice of node free, it can serve there as it is.

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
