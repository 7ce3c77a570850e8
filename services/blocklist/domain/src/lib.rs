//! Decisions of blocklist as pure functions, without clock or I/O.
//!
//! A key has at most one block ([`KeyState`]). Blocks of one key merge. The merge is commutative,
//! associative and idempotent, so repeated and reordered delivery give the same result. A removal
//! increases a counter, so that a copy from before the removal does not restore the block (BL-6).
//!
//! Facts about failures are stored in a [`FactLog`]. A [`Rule`] scores a node by its facts and may
//! propose a block. The [`brakes`] then allow or prevent the block, and [`backoff`] sets its
//! duration. Windows end at the time of a fact, not at the current time.

pub mod backoff;
pub mod block;
pub mod block_key_state;
pub mod brake_check;
pub mod brakes;
pub mod fact_log;
pub mod node_fact;
pub mod rule;
pub mod trial_verdict;

pub use block::{Action, Block};
pub use block_key_state::{Canary, KeyState, Outcome};
pub use brakes::{BrakeReason, Brakes, PoolCounts};
pub use fact_log::{FactLog, Window};
pub use node_fact::{Attempt, Blame, Fact, FactKind};
pub use rule::{ClassPolicy, Proposal, Rule, Score};
