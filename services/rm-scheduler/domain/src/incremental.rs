//! Support for incremental rounds. The rows of a round are retained, and the next round computes
//! only the rows that a delta affects.
//!
//! The decisions equal those of a planner that computes all rows. The tests compare each
//! round with that of a new planner.

pub(crate) mod tracked_vec;
