//! The decisions of container-manager as pure functions: the next state of a container
//! ([`transition`]), whether a report of an agent is new ([`report_filter`]), and which part of its
//! output is new ([`output_chunk`]).
//!
//! There is no clock, no I/O and no randomness. Time appears only as a revision of this service. A
//! report with observed revision r was written when its agent had seen everything committed up to
//! r. No decision relies on sequence numbers, agent instances or clocks of nodes (D5).

pub mod lifecycle;
pub mod log_cursor;
pub mod log_tail;
pub mod output_chunk;
pub mod report_filter;
pub mod transition;

pub use lifecycle::{Goal, Lifecycle, State};
pub use log_cursor::{LogCursor, LogPosition};
pub use log_tail::last_lines_offset;
pub use output_chunk::{Chunk, unstored_part};
pub use report_filter::ReportFilter;
pub use transition::{AllocationStatus, Fact, Observation, Transition, decide};
