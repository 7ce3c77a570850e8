//! Why each piece of work has what it has.

pub(crate) mod shares;
pub(crate) mod unblock;
pub(crate) mod verdict;
