//! Idle room that is due to nobody is lent.

pub(crate) mod candidates;
