//! Tests of whole rounds on small fleets, which [`fixture`] builds and runs. Tests of one module
//! are in its own file or folder.

mod avoided_nodes;
mod closed_nodes;
mod digests;
mod dimensions;
mod examples;
pub(crate) mod fixture;
mod invariants;
pub(crate) mod properties;
pub(crate) mod random_fleets;
mod rules;
mod setting_effects;
