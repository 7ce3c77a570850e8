//! The pure heart of blocklist: what two statements about one key mean together, what an older copy
//! of one is worth, and when a block is over.
//!
//! Merging is commutative, associative and idempotent (B1), so repeated or re-ordered delivery ends
//! in the same item. A removal counts up, and a copy from before it revives nothing (B6).

pub mod item;
pub mod slot;

pub use item::{Action, Item};
pub use slot::{Outcome, Slot};
