//! Incremental rounds: rows and results are kept from round to round, and only what a delta
//! touches is computed again. This code changes no decision.
//!
//! The tests compare each round with one of a planner without a past.

pub(crate) mod idle_trees;
pub(crate) mod join;
pub(crate) mod prefetch;
pub(crate) mod tracked_vec;

use crate::{entitlement::fair_share::UserCounts, state::RoundState};

impl RoundState<'_> {
    /// Frees the counts of users after a rebuild, which is when memory is scarcest. The next round
    /// counts all users again.
    pub fn drop_counts_after_rebuild(&mut self) {
        if self.index.rebuilt {
            self.derived.user_counts = UserCounts::default();
        }
    }
}
