//! How rounds become cheap. Nothing here changes a decision.

pub(crate) mod idle_trees;
pub(crate) mod join;
pub(crate) mod prefetch;
pub(crate) mod tracked_vec;
