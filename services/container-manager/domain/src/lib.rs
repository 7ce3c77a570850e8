//! The decisions of container-manager as pure functions: the next state of a container
//! ([`decide`]), whether a report of an agent is new ([`report_filter`]), and which part of its
//! output is new ([`output_chunk`]).
//!
//! There is no clock, no I/O and no randomness. Time appears only as a revision of this service. A
//! report with observed revision r was written when its agent had seen everything committed up to
//! r. No decision relies on sequence numbers, agent instances or clocks of nodes (D5).

pub mod decide;
pub mod lifecycle;
pub mod log_cursor;
pub mod output_chunk;
pub mod report_filter;

pub use decide::{AllocationStatus, Fact, Observation, Transition, decide};
pub use lifecycle::{Goal, Lifecycle, State};
pub use log_cursor::{LogCursor, LogPosition, last_lines_offset};
pub use output_chunk::{Chunk, new_part};
pub use report_filter::ReportFilter;
