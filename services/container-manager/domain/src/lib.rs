//! The pure heart of container-manager: what becomes of a container when a fact is learned, which
//! reports of an agent count, and which output is new.
//!
//! No clock, no i/o, no randomness (decision D5). Time appears only as revisions of this service:
//! a report that answers revision r was composed after everything committed up to r was known to
//! its node, and that order is the only one these decisions rely on. Sequence numbers, instances
//! and instants of other machines never prove anything.

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
