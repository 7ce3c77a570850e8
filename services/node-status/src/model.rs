//! The types of the working set. Rows, commands and the ledger share them.

mod drain;
mod enrolment;
mod node;

pub use self::drain::{Drain, checked};
pub use self::enrolment::{Asked, Bounds, Enrolment, EnrolmentKey};
pub use self::node::{Node, pool_of};
