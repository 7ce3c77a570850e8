//! The decisions of container-manager as pure functions: the next state of a container
//! ([`decide`]), which reports of an agent are new ([`report_filter`]), and which output is new
//! ([`output`]).
//!
//! There is no clock, no I/O and no randomness. Time appears only as a revision of this service: an
//! agent that answers revision r had seen everything committed up to r when it wrote the report.
//! No decision relies on sequence numbers, agent instances or clocks of other machines (D5).

pub mod decide;
pub mod life;
pub mod log_cursor;
pub mod output;
pub mod report_filter;

pub use decide::{AllocationStatus, Fact, Observation, Step, decide};
pub use life::{Goal, Life, State};
pub use log_cursor::{LogCursor, LogPosition, last_lines};
pub use output::{Piece, new_part};
pub use report_filter::ReportFilter;
