//! The types of the working set. Rows, commands and the ledger share them.

mod drain;
mod enrolment;
mod node;

pub use self::drain::{Drain, validate};
pub use self::enrolment::{ClaimLimits, Enrolment, EnrolmentKey, NewEnrolment};
pub use self::node::{Node, pool_of};
