//! Types of the working set that rows, commands and the ledger share.

mod drain;
mod enrolment;
mod node;

pub use self::drain::{Drain, validate_drain_request};
pub use self::enrolment::{ClaimLimits, Enrolment, EnrolmentKey, NewEnrolment};
pub use self::node::{Node, pool_of};
