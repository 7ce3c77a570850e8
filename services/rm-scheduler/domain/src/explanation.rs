//! Step 9: why each piece of work has what it has.
//!
//! In: the state after all decisions. Out: one verdict for each piece of work, the smallest change
//! that would start one more process, and the arithmetic from capacity to each piece of work.
//!
//! Never: changes the state. The sums of the shares are checked in `output/share_sums.rs`.

pub(crate) mod shares;
pub(crate) mod unblock;
pub(crate) mod verdict;
