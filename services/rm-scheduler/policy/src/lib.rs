//! The rules of the policy document.
//!
//! [`read`] reads a document and returns a [`Policy`] or all its faults, each with a JSON pointer
//! and a hint how to correct it. [`Rules::new`] applies inheritance, translates the policy for the
//! planner and finds the pool of a node. [`differences`] lists the differences between two
//! policies, and [`import::import`] reads the stanza files of DUCC.
//!
//! rm-scheduler, `hayward policy`, the simulator and the fuzzer use this crate. It has no state and
//! reads no file and no clock, so the same document always gives the same result.

mod definition_order;
mod diff;
mod document;
mod fault;
pub mod import;
mod inheritance;
mod node_pools;
mod redaction;
mod setting_notes;
mod translate;
mod validate;
mod wait_targets;

pub use hayward_rm_scheduler_api::policy::Policy;

pub use diff::differences;
pub use document::{Document, ParsedPolicy, parse, read};
pub use fault::{Fault, pointer};
pub use node_pools::{Identity, NodePools};
pub use redaction::without_names;
pub use setting_notes::notes;
pub use translate::Rules;
pub use validate::{contradictions, faults};
pub use wait_targets::wait_target;
