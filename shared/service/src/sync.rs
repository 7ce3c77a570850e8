//! Locks whose users the tests run in many orders.

#[cfg(test)]
pub(crate) use hayward_interleavings::Mutex;
#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;
