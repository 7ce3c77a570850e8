//! Tests of whole rounds on small fleets, which [`fixture`] builds and runs. Tests of one module
//! are in its own file or folder.

mod avoided_nodes;
mod closed_nodes;
mod digests;
pub(crate) mod fixture;
mod growth_into_free_space;
mod invariants;
mod plan_check;
pub(crate) mod properties;
pub(crate) mod random_fleets;
mod resource_dimensions;
mod setting_effects;
mod spec_examples;
mod spec_rules;
