//! Responses to readers: forecasts, load and node contents. They make no decisions.

pub mod drain_preview;
pub mod load;
pub mod node_contents;
pub mod policy_impact;
pub mod queues;
pub mod redaction;
pub mod shares;
pub mod what_if;
