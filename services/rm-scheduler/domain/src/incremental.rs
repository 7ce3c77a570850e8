//! Tools of incremental rounds: rows survive, and only what a delta touches is computed again.
//! This code changes no decision.
//!
//! The tests compare each round with one of a planner without a past.

pub(crate) mod tracked_vec;
