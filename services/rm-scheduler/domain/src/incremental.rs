//! Tools of incremental rounds: rows survive, and only the part that a delta touches is computed
//! again. This code changes no decision.
//!
//! The tests compare each round with a round of a planner without a past.

pub(crate) mod tracked_vec;
