//! Computes responses to readers, such as forecasts, load and node contents. No query changes
//! anything.

pub mod drain_preview;
pub mod load;
pub mod node_contents;
pub mod policy_impact;
pub mod queues;
pub mod redaction;
pub mod shares;
pub mod what_if;
