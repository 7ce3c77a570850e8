//! The pure heart of blocklist: what two statements about one key mean together, what an older copy
//! of one is worth, when a block is over; and what the record of a machine says about it.
//!
//! Merging is commutative, associative and idempotent (B1), so repeated or re-ordered delivery ends
//! in the same item. A removal counts up, and a copy from before it revives nothing (B6).
//!
//! Facts about failures are kept in a [`Record`]; a [`Rule`] scores a machine by them and may
//! propose to block it. Between a proposal and a block stand the [`brakes`], and the duration is
//! the [`backoff`]'s. None of this has a clock: the end of every window is the time of a fact.

pub mod backoff;
pub mod block;
pub mod brake_check;
pub mod brakes;
pub mod canary;
pub mod fact;
pub mod key_state;
pub mod record;
pub mod rule;

pub use block::{Action, Item};
pub use brakes::{Brakes, Pool, Withheld};
pub use fact::{Attempt, Blame, Fact, What};
pub use key_state::{Outcome, Slot, Trial};
pub use record::{Record, Window};
pub use rule::{Class, Proposal, Rule, Score};
