//! Locks that the tests replace in order to check many interleavings.

#[cfg(test)]
pub(crate) use hayward_interleavings::Mutex;
#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;
