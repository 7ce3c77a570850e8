//! The rules of the policy document (fair-share, section 3).
//!
//! [`read`] takes a document as it was written and gives a [`Policy`] or all its faults at once,
//! each with a JSON pointer and with what would mend it. [`Rules::of`] fills in what classes
//! inherit and says which pool a node belongs to, in the words of the planner. [`differences`]
//! says what one policy has other than the next, and [`import::import`] reads the stanza files of
//! the original.
//!
//! It serves rm-scheduler, `hayward policy` without a fleet, the simulator and the fuzzer. It owns
//! nothing, reads no file and no clock: equal documents get equal answers everywhere.

mod definition_order;
mod diff;
mod document;
mod fault;
pub mod import;
mod inheritance;
mod node_pools;
mod notes;
mod redaction;
mod translate;
mod validate;
mod wait_limits;

pub use hayward_rm_scheduler_api::policy::Policy;

pub use diff::differences;
pub use document::{Document, Reading, read, reading};
pub use fault::{Fault, pointer};
pub use node_pools::{Homes, Identity};
pub use notes::notes;
pub use redaction::without_names;
pub use translate::Rules;
pub use validate::{contradictions, faults};
pub use wait_limits::wait_target;
