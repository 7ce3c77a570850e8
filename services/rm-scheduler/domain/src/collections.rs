//! Sets, lists and buckets of small numbers.

pub(crate) mod bit_set;
pub(crate) mod buckets;
pub(crate) mod dense_set;
pub(crate) mod id_list;
