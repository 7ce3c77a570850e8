//! Support for incremental rounds. The rows of a round are kept, and the next round computes only
//! the rows that a delta affects.
//!
//! Decisions are the same as without it. The tests compare each round with that of a new planner.

pub(crate) mod tracked_vec;
