//! Step 9: why each piece of work has what it has.
//!
//! In: the state after all decisions. Out: one verdict for each piece of work, and the smallest
//! change that would start one more process. Also shares that add up from the fleet to each piece
//! of work.
//!
//! Rules: reasons and unblocks come from the functions that decided (I20). The sums of the shares
//! are checked in `output/share_sums.rs`. This step never changes the state.

pub(crate) mod shares;
pub(crate) mod unblock;
pub(crate) mod verdict;
