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

mod differences;
mod document;
mod fault;
mod homes;
pub mod import;
mod lineage;
mod notes;
mod order;
mod readers;
mod rules;
mod validate;
mod waits;

pub use hayward_rm_scheduler_api::policy::Policy;

pub use differences::differences;
pub use document::{Document, Reading, read, reading};
pub use fault::{Fault, pointer};
pub use homes::{Homes, Identity};
pub use notes::notes;
pub use readers::without_names;
pub use rules::Rules;
pub use validate::{contradictions, faults};
pub use waits::wait_target;
